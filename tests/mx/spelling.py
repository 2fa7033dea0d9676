"""Lines of Python that MXNet 1.9.1 and ``requant.mx`` must answer alike.

This file runs on both sides: under MXNet's Python 3.8 (``record.py``) and in our tests. It needs numpy alone. A case is
one or more statements, separated by ``;``, of which the last is an expression. Known to them: mx, nd, sym, np, a matrix
``m``, a vector ``v``, an int32 vector ``i`` and symbols ``a`` and ``b``.
"""

import ast
import collections
import json

import numpy as np

ARRAYS = """
nd.array(3.0)
nd.array(np.arange(3))
nd.array(np.arange(3), dtype='int8')
nd.array([True, False])
nd.array(i)
nd.array([1.5, 2], dtype=np.float16)
nd.zeros(3)
nd.zeros((2,), dtype='int32')
nd.full((2,), 3)
nd.full((2,), 3, dtype='int32')
nd.arange(3)
nd.arange(1, 3, 0.5)
nd.arange(0, 3, repeat=2)
nd.arange(3, dtype='int32')
nd.linspace(0, 1, 5)
nd.linspace(0, 1, 5, endpoint=False)
nd.eye(2)
nd.eye(2, 3, k=1)
nd.empty((2, 3)).shape
nd.from_numpy(np.ones((2,)))
nd.concatenate([m, nd.zeros((1, 2))])
nd.concatenate([m, m], axis=1)
nd.moveaxis(nd.zeros((1, 2, 3)), 0, 2).shape
nd.split_v2(nd.arange(6).reshape((2, 3)), 3, axis=1)
nd.split_v2(nd.arange(6), (2, 4))
nd.split_v2(nd.arange(6).reshape((2, 3)), 3, axis=1, squeeze_axis=True)
nd.histogram(nd.array([1, 2, 3]), bins=2, range=(0, 4))
v.shape
m.size
m.ndim
m.dtype
i.dtype
m.context
m.stype
m.grad
len(m)
repr(v)
repr(nd.array([[1, 2.5], [3, 4]], dtype='float16'))
bool(nd.array([1]))
bool(nd.array([0]))
bool(v)
nd.array([1.5]).asscalar()
v.asscalar()
v.astype('int32')
nd.array([1.7, -1.7]).astype('int32')
nd.array([1.7, 300]).astype('uint8')
v.copyto(nd.zeros((2,), dtype='int32'))
v.copyto(mx.cpu(1)).context
v.copyto(nd.zeros((3,)))
v.asnumpy().flags.writeable
v.attach_grad()
v.detach()
v.wait_to_read()
nd.waitall()
mx.cpu(1)
mx.gpu(1)
mx.cpu() == mx.cpu(0)
mx.cpu() == mx.gpu()
mx.context.current_context()
mx.Context('gpu', 2).device_typeid
"""

INDEXING = """
v[0]
v[-1]
m[0]
m[0, 1]
m[:, 1]
m[..., 0]
m[..., None]
m[None]
m[1:]
m[2:]
m[::-1]
m[:, ::-1]
m[[0, 1, 1]]
m[nd.array([0, 1, 1])]
m[np.array([0, 1, 1])]
m[[0, 1], [1, 0]]
m[m > 2]
m[True]
v[()]
v[5]
v[1.0]
v['a']
list(v)
m[1:][0]
m[0:1, 0:1]
m[0] = 7; m
m[:] = 5; m
m[:, 1] = nd.array([8, 9]); m
m[0, 1] = nd.array([8]); m
m[1] = np.array([1.5, 2.5]); m
m[:] = nd.array([1, 2]); m
m[nd.array([1, 0])] = nd.array([[1, 2], [3, 4]]); m
m[[0, 1], [1, 0]] = 0; m
i[:] = 2.7; i
w = m[0]; w[:] = 9; m
w = m[1:2]; w += 1; m
w = m.reshape((4,)); w[0] = -1; m
w = m[:, 1]; w[:] = 0; m
w = m.T; w[:] = 0; m
m += 1; m
m *= 2; m
m -= nd.array([1, 2]); m
m /= 2; m
w = v; w += 1; v
i += 1.5; i
"""

SHAPES = """
nd.zeros((2, 3, 4)).reshape((-1,)).shape
nd.zeros((2, 3, 4)).reshape((0, -1)).shape
nd.zeros((2, 3, 4)).reshape(-1, 4).shape
nd.zeros((2, 3, 4)).reshape(shape=(-3, 0)).shape
nd.zeros((2, 3, 4)).reshape((-4, 1, 2, -2)).shape
nd.zeros((2, 3, 4)).reshape((5,)).shape
nd.zeros((2, 3, 4)).reshape((-1, 0), reverse=True).shape
nd.zeros((2, 3, 4)).reshape(4, 3, 2).shape
nd.zeros((2, 3, 4)).T.shape
m.T
m.transpose((1, 0))
m.transpose()
m.expand_dims(0).shape
m.expand_dims(axis=-1).shape
nd.zeros((2, 3, 4)).flatten().shape
nd.zeros((1, 2, 1)).squeeze().shape
nd.zeros((1, 2, 1)).squeeze(0).shape
v.broadcast_to((2, 2))
nd.array([[1, 2]]).broadcast_to((0, 2))
m.slice(begin=(0, 1), end=(1, 2))
m.slice_axis(axis=1, begin=0, end=1)
m.tile((2, 1))
m.repeat(2)
m.flip(axis=0)
m.swapaxes(0, 1)
m.split(2, axis=1)
nd.split(m, num_outputs=1, axis=1)
nd.stack(v, v, axis=1)
nd.concat(v, v, dim=0)
nd.Concat(v, v, dim=0)
nd.concat(v, dim=0)
nd.SliceChannel(m, num_outputs=2)
"""

ARITHMETIC = """
v + v
v + 1
1 + v
v - 1
1 - v
v * v
2.5 * v
v / 2
2 / v
v ** 2
2 ** v
nd.array([3, -3]) % 2
2 % nd.array([3, -3])
-v
abs(-v)
i + 1.5
i * 1.5
i / 2
nd.array([3, -3], dtype='int32') / 2
nd.array([3, -3], dtype='int32') % 2
i ** 2
-i
i + v
nd.array([1, 2], dtype='uint8') + nd.array([255, 2], dtype='uint8')
nd.array([1, 2], dtype='uint8') + 255
nd.array([1, 2], dtype='int8') + nd.array([127, 2], dtype='int8')
nd.array([1, 2], dtype='float16') + nd.array([127, 2], dtype='float16')
nd.array([1, 2], dtype='float64') * 3
m + v
nd.ones((2, 3)) * nd.ones((1, 3))
v == v
v != 1
v > 1
1 > v
v >= nd.array([2, 2])
v < 2
v <= 1
i > 1
i == nd.array([1, 3], dtype='int32')
nd.array([1, 2], dtype='float64') > 1
v == None
v == 'a'
v + np.array([1, 2])
np.array([1, 2]) + v
np.float64(2) * v
nd.array([1]) in [nd.array([1])]
nd.add(v, 1)
nd.subtract(1, v)
nd.multiply(v, v)
nd.divide(v, 2)
nd.true_divide(v, 2)
nd.modulo(v, 2)
nd.power(2, v)
nd.maximum(v, 1.5)
nd.minimum(1.5, v)
nd.maximum(1.5, 1)
nd.greater(v, 1)
nd.lesser_equal(1, v)
nd.not_equal(v, v)
nd.logical_and(nd.array([1, 0]), 1)
nd.logical_xor(nd.array([1, 0]), nd.array([1, 1]))
nd.equal(1, 2)
nd.add(1, 2)
"""

OPERATORS = """
m.sum()
m.sum(axis=1)
m.sum(1)
m.mean(axis=0, keepdims=True)
m.max()
m.min(axis=0)
m.prod()
m.norm()
m.argmax(axis=1)
m.topk(k=1)
nd.topk(nd.array([[3, 1, 2]]), k=2, ret_typ='both')
m.sort(axis=1)
m.clip(1, 2)
nd.clip(m, 1, 2)
nd.clip(m, a_min=1, a_max=2)
nd.clip(data=m, a_min=1, a_max=2, name='x')
w = nd.zeros((2, 2)); nd.clip(m, 1, 2, out=w); w
nd.clip(m, 1, 2, out=nd.zeros((3,)))
m.exp()
m.sqrt()
m.square()
m.relu()
m.sigmoid()
m.softmax()
m.softmax(axis=0)
m.log_softmax()
m.one_hot(5)
m.take(nd.array([1]))
m.pick(nd.array([1, 0]))
nd.dot(m, m)
nd.dot(m, m, transpose_b=True)
nd.batch_dot(nd.ones((1, 2, 3)), nd.ones((1, 3, 2)))
nd.add_n(v, v, v)
nd.ElementWiseSum(v, v)
nd.zeros_like(i)
nd.ones_like(i)
nd.cast(v, dtype='int32')
nd.Cast(v, 'int8')
nd.Activation(v, 'relu')
nd.Activation(v)
nd.Activation(v, act_type='foo')
nd.Activation([1, 2], act_type='relu')
nd.FullyConnected(nd.ones((1, 2)), nd.ones((3, 2)), no_bias=True, num_hidden=3)
nd.FullyConnected(data=nd.ones((1, 2)), weight=nd.ones((3, 2)), bias=nd.ones((3,)), num_hidden=3)
nd.FullyConnected(nd.ones((1, 2)), nd.ones((3, 2)), num_hidden=3)
nd.Convolution(nd.ones((1, 1, 3, 3)), nd.ones((1, 1, 3, 3)), None, kernel=(3, 3), num_filter=1, no_bias=True)
nd.where(m > 2, m, -m)
nd.relu(nd.array([-1, 1]))
nd.linalg.gemm2(m, m)
nd.contrib.div_sqrt_dim(m)
nd.image.to_tensor(nd.array(np.arange(6).reshape(1, 2, 3), dtype='uint8'))
nd.image.normalize(nd.ones((3, 1, 2)), mean=(0, 1, 2), std=(1, 2, 4))
nd.random.uniform(shape=(2, 3)).shape
nd.random.uniform(0, 1, (2, 3)).dtype
nd.random_uniform(shape=2).shape
nd.random.normal().shape
nd.random.normal(nd.zeros((2,)), nd.ones((2,)), shape=(3,)).shape
nd.random.randint(0, 5, shape=(2,)).dtype
nd.random.multinomial(nd.array([[0, 1], [1, 0]]), shape=(2,))
nd.NoSuchOperator
nd.contrib.isnan(nd.array([1, np.nan, np.inf]))
nd.contrib.isinf(nd.array([1, np.nan, -np.inf]))
nd.contrib.isfinite(nd.array([1, np.nan, np.inf]))
nd.uniform(shape=(2,)).shape
m.split_v2(2, axis=1)
v.backward()
m.tostype('csr').indptr
m.tostype('row_sparse').indices
m.tostype('csr').tostype('default')
nd.sparse.zeros('csr', (2, 3)).asnumpy().sum()
v.tostype('csr')
"""

SYMBOLS = """
a + b
a + 1
1 + a
a - b
a - 1
1 - a
a * b
a * 2.5
a / b
a / 2
2 / a
a ** b
a ** 2
2 ** a
a % b
a % 2
2 % a
-a
abs(a)
a == b
a == 1
a != b
a != 1
a > b
a > 1
1 > a
a >= b
a >= 1
a < b
a < 1
a <= b
a <= 1
(a + b) + (a + 1)
sym.maximum(a, b)
sym.maximum(a, 1)
sym.maximum(1, a)
sym.minimum(a, 1)
sym.pow(a, b)
sym.pow(a, 2)
sym.pow(2, a)
sym.pow(2, 3)
sym.hypot(a, b)
sym.zeros((2, 3))
sym.ones((2, 3), dtype='int32')
sym.full((2,), 3)
sym.arange(0, 3, 0.5, repeat=2)
sym.linspace(0, 1, 5)
sym.eye(3)
sym.split_v2(a, 2, axis=1)
sym.split_v2(a, (1, 3), axis=1)
sym.var('x', shape=(1, 2), lr_mult=0.5, wd_mult=2, dtype='float16', stype='csr')
sym.Variable('x', attr={'foo': 'bar'})
sym.Variable('x', foo='bar')
sym.Variable('x', __foo__='bar')
sym.Variable('x', shape=(0, 2), dtype=np.int32).list_attr()
sym.Variable(1)
sym.FullyConnected(a, num_hidden=3)
sym.FullyConnected(a, num_hidden=3, name='fc')
sym.FullyConnected(a, num_hidden=3, attr={'__foo__': '1'})
sym.FullyConnected(a, num_hidden=3, attr={'foo': '1'})
sym.FullyConnected(a, num_hidden=3, lr_mult=2.0)
sym.FullyConnected(a, num_hidden=3, __lr_mult__='2.0')
sym.FullyConnected(a, num_hidden=3).attr_dict()
sym.FullyConnected(data=a, num_hidden=3, foo=1)
sym.FullyConnected(a, num_hidden='x')
sym.FullyConnected(a)
sym.FullyConnected(data=[a], num_hidden=3)
sym.FullyConnected(sym.Group([a, b]), num_hidden=3)
sym.FullyConnected(sym.split(a, num_outputs=2), num_hidden=3)
sym.Convolution(a, kernel=(3, 3), num_filter=np.int64(3))
sym.Convolution(a, kernel=[3, 3], num_filter=3, no_bias=True, name='c')
sym.Convolution(a, weight=b, kernel=(3, 3), num_filter=3, layout=None)
sym.Convolution(a, (3, 3))
sym.Convolution(sym.Convolution(a, kernel=(3, 3), num_filter=3), kernel=(1, 1), num_filter=1)
sym.BatchNorm(a)
sym.BatchNorm(a, eps=2e-5, fix_gamma=False, name='bn')
sym.BatchNorm(a).list_auxiliary_states()
sym.relu(a)
sym.relu(5)
sym.Activation(a, 'relu')
sym.concat(a, b, dim=1)
sym.Concat(*[a, b], name='cc')
sym.Concat(a, b, dim=1, num_args=2)
sym.stack(a, b, axis=1)
sym.add_n(a, b)
sym.ElementWiseSum(a, b)
sym.flatten(a)
sym.Flatten(a)
sym.Reshape(a, shape=[1, -1])
sym.swapaxes(a, dim1=0, dim2=1)
sym.slice(a, begin=(0, None), end=(1, 2))
sym.cast(a, dtype=np.float16)
sym.Dropout(a)
sym.dot(a, b)
sym.broadcast_add(a, b)
sym.elemwise_add(a, b)
sym.SoftmaxOutput(a, name='softmax')
sym.identity(a)
sym.BlockGrad(a)
sym.stop_gradient(a)
sym.Pooling(a, pool_type='max', kernel=(2, 2), global_pool=True)
sym.LeakyReLU(a, act_type='prelu')
sym.RNN(a, state_size=3, num_layers=1, mode='lstm')
sym.Embedding(a, input_dim=3, output_dim=2)
sym.UpSampling(a, scale=2, sample_type='nearest')
sym.UpSampling(a, scale=2, sample_type='bilinear', num_filter=3)
sym.Deconvolution(a, kernel=(2, 2), num_filter=3)
sym.SequenceMask(a, use_sequence_length=True)
sym.SequenceMask(a)
sym.where(a > 0, a, b)
sym.softmax(a, length=b, use_length=True)
sym.softmax(a, b)
sym.split(a, num_outputs=2)
sym.split(a, num_outputs=2)[1]
len(sym.split(a, num_outputs=2))
[x.name for x in sym.split(a, num_outputs=2)]
sym.split(a, num_outputs=2)['split0_output1'].list_outputs()
sym.contrib.BilinearResize2D(a, height=2, width=2)
sym.contrib.arange_like(a, axis=1)
sym.linalg.gemm2(a, b)
sym._internal._plus(a, b)
sym._internal._PlusScalar(a, scalar=1)
sym._internal._plus_scalar(a, scalar=1)
sym.op.relu(a)
sym.pad(a, mode='constant', pad_width=(0, 0, 0, 0, 1, 1, 1, 1))
sym.L2Normalization(a)
sym.Crop(a, b, h_w=(2, 2))
sym.MakeLoss(a)
a.reshape((0, -1))
a.reshape(shape=(0, -1))
a.sum(axis=1)
a.transpose((1, 0))
a.mean()
a.astype('float16')
a.slice_axis(axis=1, begin=0, end=None)
a.flatten()
a.expand_dims(axis=1)
a.squeeze()
a.clip(0, 1)
a.softmax()
a.slice_like(b, axes=(2, 3))
sym.Group([a, b])
sym.Group([a + 1, b])
sym.Group([])
sym.Group([a, b]).name
repr(a + 1)
repr(sym.Group([a, b]))
(a + b).attr('foo')
(a + 1).attr('scalar')
(a + 1).list_attr()
(a + b).infer_shape(a=(1, 2))
(a + b).infer_shape(a=(1, 2), b=(2, 2))
(a + b).infer_shape(a=(0, 2))
(a + b).infer_shape_partial(a=(0, 2))
(a + b).infer_shape()
(a + b).infer_type(a='float16')
(a + b).infer_type()
sym.FullyConnected(a, num_hidden=3).infer_shape_partial()
sym.FullyConnected(a, num_hidden=3).infer_shape(a=(2, 5))
sym.FullyConnected(a, num_hidden=3).infer_type(a='float16')
sym.BatchNorm(sym.Convolution(a, kernel=(3, 3), num_filter=4)).infer_shape(a=(1, 3, 8, 8))
a.get_children()
(a + b).get_children().list_outputs()
(a + b).get_internals().list_outputs()
(a + b).get_internals()['_plus0_output'].name
(a + b).list_inputs()
(a + b)['foo']
(a + b)[1]
(a + b)(a=sym.var('c'))
sym.FullyConnected(a, num_hidden=3)(a=sym.relu(b), name='zz')
sym.FullyConnected(a, num_hidden=3).debug_str()
a.squeeze(axis=1)
sym.load_json((a + b).tojson())
sym.load_json('{}')
sym.load_json('x')
bool(a)
a == None
a + np.ones(2)
a.asnumpy()
inside(mx.AttrScope(__color__='red'), lambda: sym.relu(sym.var('y')))
inside(mx.name.Prefix('net_'), lambda: sym.FullyConnected(a, num_hidden=1))
(a + b).eval(a=nd.ones((1,)), b=nd.ones((1,)))
"""

RUNNING = """
e = NET.simple_bind(mx.cpu(), a=(2, 3)); list(e.arg_dict)
e = NET.simple_bind(mx.cpu(), a=(2, 3)); [o.shape for o in e.outputs]
e = NET.simple_bind(mx.cpu(), a=(2, 3)); fill(e); e.forward(is_train=False, a=A)
e = NET.simple_bind(mx.cpu(), a=(2, 3)); fill(e); e.forward(a=A); e.arg_dict['fc_weight'][0] = 0; e.forward()
e = NET.simple_bind(mx.cpu(), a=(2, 3)); fill(e); e.arg_dict['a'][:] = A; e.forward(); e.output_dict['softmax_output']
e = NET.simple_bind(mx.cpu(), a=(2, 3)); e.forward(a=nd.ones((4, 3)))
e = NET.simple_bind(mx.cpu(), a=(2, 3)); e.forward(b=nd.ones((4, 3)))
e = NET.simple_bind(mx.cpu(), a=(2, 3)); e.copy_params_from({'x': nd.ones((1,))})
e = NET.simple_bind(mx.cpu(), a=(2, 3)); e.copy_params_from({'fc_bias': nd.ones((3,))})
e = NET.simple_bind(mx.cpu(), a=(2, 3)); fill(e); e.reshape(a=(1, 3), partial_shaping=True).forward(a=A[:1])
watched(NET)
watched(sym.FullyConnected(sym.FullyConnected(a, num_hidden=2), num_hidden=1), monitor_all=True)
FC.bind(mx.cpu(), {'a': nd.ones((1, 2))})
FC.bind(mx.cpu(), [nd.ones((1, 2))])
FC.bind(mx.cpu(), {'a': A, 'fc_weight': nd.ones((2, 3)), 'fc_bias': nd.array([1, 2])}).forward()
FC.bind(mx.cpu(), [A, nd.ones((2, 3)), nd.array([1, 2])]).forward()
M().data_names
M().label_names
M().output_names
M().forward(mx.io.DataBatch([A]))
M().data_shapes
mx.mod.Module(NET, data_names=['data'], label_names=[])
M().bind([('x', (2, 3))], for_training=False)
o = M(); o.bind([('a', (2, 3))], for_training=False); o.data_shapes == [('a', (2, 3))]
o = M(); o.bind([('a', (2, 3))], for_training=False); o.label_shapes
o = M(); o.bind([('a', (2, 3))], for_training=False); o.output_shapes
o = M(); o.bind([('a', (2, 3))], for_training=False); o.forward(mx.io.DataBatch([A]))
o = ready(M()); o.forward(mx.io.DataBatch([A])); o.get_outputs()
o = ready(M()); o.forward(mx.io.DataBatch([A])); o.get_outputs()[0].shape
o = ready(M()); o.get_params()[0]['fc_bias']
o = ready(M()); o.set_params({'fc_weight': nd.zeros((2, 3))}, {})
o = ready(M()); o.set_params(dict(ZEROS, zz=nd.zeros((1,))), {}, allow_extra=True); o.predict(IT())
o = ready(M()); o.set_params(dict(ZEROS, zz=nd.zeros((1,))), {}); o.predict(IT())
o = ready(M()); o.set_params(dict(ZEROS, zz=nd.zeros((1,))), {}, allow_missing=True)
o = ready(M()); o.set_params({'fc_weight': nd.zeros((2, 3))}, {}, allow_missing=True); o.predict(IT())
o = ready(M()); o.init_params(); o.get_params()[0]['fc_bias']
o = M(); o.bind([('a', (2, 3))], for_training=False); o.set_params(ZEROS, {}); o.forward(PLAIN([A])); o.get_outputs()
o = M(); o.bind([('a', (2, 3))], for_training=False); o.init_params(mx.init.One()); o.get_params()[0]['fc_bias']
o = M(); o.bind([('a', (2, 3))], for_training=False); o.init_params(mx.init.One()); o.get_params()[0]['fc_weight']
o = ready(M()); o.predict(IT())
o = ready(M()); o.predict(IT(), num_batch=1).shape
o = ready(M()); o.predict(IT(), always_output_list=True)
o = ready(M()); [[y.shape for y in x] for x in o.predict(IT(), merge_batches=False)]
o = ready(M()); [(x[0].shape, k) for x, k, _ in o.iter_predict(IT())]
o = ready(M()); o.score(IT(), 'acc')
o = ready(M()); o.score(IT(), ['acc', 'ce'])
o = ready(M()); o.score(IT(), mx.metric.create('top_k_accuracy', top_k=2))
o = ready(M()); o.score(IT(), mx.metric.create(lambda label, pred: float(label.sum())), num_batch=2)
IT().provide_data
IT().provide_label
mx.io.DataDesc('a', (1, 2))
mx.io.DataDesc('a', (1, 2)) == ('a', (1, 2))
mx.io.DataDesc.get_batch_axis('TNC')
str(mx.io.DataBatch([A], pad=1))
mx.io.DataBatch(A)
rounds('pad', 2)
rounds('discard', 2)
rounds('roll_over', 2)
rounds('roll_over', 3)
rounds('roll_over', 4)
rounds('pad', 7)
np.random.seed(0); it = mx.io.NDArrayIter(np.arange(5), batch_size=2, shuffle=True); batches(it)
mx.io.NDArrayIter([np.arange(4), np.arange(4)], batch_size=2).provide_data
mx.io.NDArrayIter(np.arange(4, dtype='uint8'), batch_size=2).next().data[0].dtype
it = mx.io.ResizeIter(mx.io.NDArrayIter(np.arange(4), batch_size=2), 3); batches(it)
it = mx.io.PrefetchingIter(mx.io.NDArrayIter(np.arange(4), batch_size=2)); batches(it)
it = mx.io.PrefetchingIter(mx.io.NDArrayIter(np.arange(4), batch_size=2)); it.next(); it.reset(); batches(it)
metric('acc')
metric('ce')
metric('nll_loss')
metric('top_k_acc', top_k=2)
metric('perplexity', ignore_label=None)
metric('loss')
metric('mse', [1, 2, 3], [1, 3, 5])
metric('mae', [1, 2, 3], [1, 3, 5])
metric('rmse', [1, 2, 3], [1, 3, 5])
str(mx.metric.create('acc').get()[0])
mx.metric.create(['acc', 'ce']).get()[0]
mx.metric.np(lambda x, y: 1.0).get()[0]
mx.metric.create('nosuch')
o = mx.metric.create('acc'); o.update([nd.array([1])], [nd.ones((2, 2))])
"""

GROUPS = {
    "arrays": ARRAYS,
    "indexing": INDEXING,
    "shapes": SHAPES,
    "arithmetic": ARITHMETIC,
    "operators": OPERATORS,
    "symbols": SYMBOLS,
    "running": RUNNING,
}


def cases(group):
    """The cases of a group."""
    return [line for line in GROUPS[group].strip().split("\n") if line]


def _names(mx):
    """What a case may use, made afresh for each."""
    nd, sym = mx.nd, mx.sym
    net = sym.FullyConnected(sym.Activation(sym.var("a"), act_type="relu"), num_hidden=2, name="fc")
    values = {"fc_weight": nd.array([[1, -2, 3], [0.5, 1, 0]]), "fc_bias": nd.array([0.1, -0.2])}

    def fill(executor):
        executor.copy_params_from(values)

    def ready(module):
        module.bind([("a", (2, 3))], [("softmax_label", (2,))], for_training=False)
        module.set_params(values, {})
        return module

    def iterator():
        data = np.random.RandomState(3).normal(0, 1, (5, 3))
        return mx.io.NDArrayIter({"a": data}, np.array([0, 1, 0, 1, 0]), batch_size=2)

    def rounds(last, size):
        it = mx.io.NDArrayIter({"x": np.arange(10).reshape(5, 2), "y": np.arange(5)}, None, size, False, last)
        found = []
        for _ in range(4):
            found.append([([d.asnumpy().tolist() for d in b.data], b.pad) for b in it])
            it.reset()
        return found

    def watched(symbol, monitor_all=False):
        seen = []
        executor = symbol.simple_bind(mx.cpu(), a=(2, 3))
        executor.set_monitor_callback(lambda name, x: seen.append(name), monitor_all=monitor_all)
        executor.forward()
        return [n.decode() if isinstance(n, bytes) else n for n in seen]

    def inside(manager, make):
        with manager:
            return make()

    def metric(name, label=None, pred=None, **kwargs):
        made = mx.metric.create(name, **kwargs)
        label = nd.array([1, 1, 0] if label is None else label)
        made.update([label], [nd.array([[0.3, 0.7], [0.6, 0.4], [0.2, 0.8]] if pred is None else pred)])
        return made.get()

    return {
        "mx": mx,
        "nd": nd,
        "sym": sym,
        "np": np,
        "m": nd.array([[1, 2], [3, 4]]),
        "v": nd.array([1, 2]),
        "i": nd.array([1, 2], dtype="int32"),
        "a": sym.var("a"),
        "b": sym.var("b"),
        "A": nd.array([[1, -1, 0.5], [2, 1, -3]]),
        "FC": net,
        "NET": sym.SoftmaxOutput(net, name="softmax"),
        "M": lambda: mx.mod.Module(sym.SoftmaxOutput(net, name="softmax"), data_names=["a"]),
        "IT": iterator,
        "fill": fill,
        "ready": ready,
        "rounds": rounds,
        "metric": metric,
        "watched": watched,
        "inside": inside,
        "ZEROS": {"fc_weight": nd.zeros((2, 3)), "fc_bias": nd.zeros((2,))},
        "PLAIN": collections.namedtuple("PLAIN", ["data"]),
        "batches": lambda it: [x.data[0].asnumpy().tolist() for x in it],
    }


def show(value, mx):
    """A result as JSON can hold it."""
    if isinstance(value, mx.nd.NDArray):
        return ["array", np.dtype(value.dtype).name, list(value.shape), value.asnumpy().reshape(-1).tolist()]
    if isinstance(value, mx.sym.Symbol):
        graph = json.loads(value.tojson())
        return [
            "symbol",
            [[n["op"], n["name"], n.get("attrs", {}), n["inputs"]] for n in graph["nodes"]],
            graph["heads"],
        ]
    if isinstance(value, mx.io.DataDesc):
        return ["desc", str(value)]
    if isinstance(value, (list, tuple)):
        return ["list", [show(v, mx) for v in value]]
    if isinstance(value, dict):
        return ["dict", [[k, show(v, mx)] for k, v in sorted(value.items())]]
    if isinstance(value, type):
        return ["type", value.__name__]
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, float, np.generic)):
        return float(value)
    return ["text", str(value)]


def answer(mx, line):
    """What ``mx`` answers: the value of the last expression, or the kind of error."""
    body = ast.parse(line).body
    with mx.name.NameManager():
        scope = _names(mx)
        try:
            exec(compile(ast.Module(body[:-1], []), "case", "exec"), scope)
            return show(eval(compile(ast.Expression(body[-1].value), "case", "eval"), scope), mx)
        except Exception as fault:
            kind = next(c.__name__ for c in type(fault).__mro__ if c.__module__ == "builtins")
            return ["error", kind, isinstance(fault, mx.MXNetError)]
