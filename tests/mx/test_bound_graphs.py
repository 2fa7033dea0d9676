"""Executor, Module and SymbolBlock: parameters that change, threads, files, refusals."""

import threading
from pathlib import Path

import numpy as np
import pytest

import requant.mx as mx
from requant.errors import InputError, ParameterError, RequantError, UnsupportedError
from requant.mx import nd, sym


def network() -> mx.sym.Symbol:
    hidden = sym.FullyConnected(sym.var("data"), num_hidden=4, name="fc1")
    out = sym.FullyConnected(sym.Activation(hidden, act_type="tanh"), num_hidden=3, name="fc2")
    return sym.SoftmaxOutput(sym.BatchNorm(out, name="bn"), name="softmax")


def parameters(seed: int = 0) -> tuple[dict[str, nd.NDArray], dict[str, nd.NDArray]]:
    rng = np.random.RandomState(seed)
    args = {"fc1_weight": (4, 5), "fc1_bias": (4,), "fc2_weight": (3, 4), "fc2_bias": (3,)}
    args |= {"bn_gamma": (3,), "bn_beta": (3,)}
    made = {n: nd.array(rng.normal(0, 1, s)) for n, s in args.items()}
    return made, {"bn_moving_mean": nd.array([0.1, 0, -0.1]), "bn_moving_var": nd.array([1, 2, 0.5])}


def by_hand(x: np.ndarray, args: dict[str, nd.NDArray], aux: dict[str, nd.NDArray]) -> np.ndarray:
    p = {n: a.asnumpy() for n, a in (args | aux).items()}
    hidden = np.tanh(x @ p["fc1_weight"].T + p["fc1_bias"])
    out = hidden @ p["fc2_weight"].T + p["fc2_bias"]
    out = (out - p["bn_moving_mean"]) / np.sqrt(p["bn_moving_var"] + 1e-3) + p["bn_beta"]
    e = np.exp(out - out.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def data(n: int = 2, seed: int = 1) -> np.ndarray:
    return np.random.RandomState(seed).normal(0, 1, (n, 5)).astype(np.float32)


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    prefix = str(tmp_path / "net")
    mx.model.save_checkpoint(prefix, 7, network(), *parameters())
    return prefix


def test_written_parameters_take_effect_at_the_next_run() -> None:
    args, aux = parameters()
    args["data"] = nd.array(data())
    executor = network().bind(mx.cpu(), args, aux_states=aux)
    close = {"rtol": 1e-4, "atol": 1e-6}
    np.testing.assert_allclose(executor.forward()[0].asnumpy(), by_hand(data(), args, aux), **close)
    for step in range(4):  # often enough that the array is fed instead of compiled in
        args["fc1_weight"][step] = step
        aux["bn_moving_mean"][0:1][:] = step  # through a view
        np.testing.assert_allclose(executor.forward()[0].asnumpy(), by_hand(data(), args, aux), **close)
    assert "fc1_weight" in executor._runner._fed
    args["data"][:] = data(seed=5)
    np.testing.assert_allclose(executor.forward()[0].asnumpy(), by_hand(data(seed=5), args, aux), **close)


def test_replaced_arrays_take_effect_too() -> None:
    args, aux = parameters()
    executor = network().bind(mx.cpu(), args | {"data": nd.array(data())}, aux_states=aux)
    executor.forward()
    executor.arg_dict["fc2_bias"] = nd.array([5, 0, 0])
    want = by_hand(data(), args | {"fc2_bias": nd.array([5, 0, 0])}, aux)
    np.testing.assert_allclose(executor.forward()[0].asnumpy(), want, rtol=1e-4, atol=1e-6)


def test_memory_shared_with_numpy_is_read_at_every_run() -> None:
    args, aux = parameters()
    shared = np.zeros(3, np.float32)
    args["fc2_bias"] = nd.from_numpy(shared)
    executor = network().bind(mx.cpu(), args | {"data": nd.array(data())}, aux_states=aux)
    for step in range(4):
        shared[0] = step
        want = by_hand(data(), args, aux)
        np.testing.assert_allclose(executor.forward()[0].asnumpy(), want, rtol=1e-4, atol=1e-6)


def test_training_is_refused() -> None:
    args, aux = parameters()
    executor = network().bind(mx.cpu(), args | {"data": nd.array(data())}, aux_states=aux)
    with pytest.raises(UnsupportedError, match="does not train"):
        executor.forward(is_train=True)
    with pytest.raises(UnsupportedError, match="gradients"):
        executor.backward()
    module = mx.mod.Module(network())
    module.bind([("data", (2, 5))])
    module.set_params(*parameters())
    with pytest.raises(UnsupportedError, match="for_training=False"):
        module.forward(mx.io.DataBatch([nd.array(data())]))
    for call in (module.fit, module.backward, module.update, module.init_optimizer):
        with pytest.raises(UnsupportedError, match="does not train"):
            call()


def test_module_from_a_checkpoint(checkpoint: str) -> None:
    module = mx.mod.Module.load(checkpoint, 7)
    iterator = mx.io.NDArrayIter(data(5), np.array([0, 1, 2, 0, 1]), batch_size=2)
    module.bind(iterator.provide_data, iterator.provide_label, for_training=False)
    want = by_hand(data(5), *parameters())
    np.testing.assert_allclose(module.predict(iterator).asnumpy(), want, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(module.predict(data(3)).asnumpy(), by_hand(data(3), *parameters()), rtol=1e-4, atol=1e-6)
    module.save_checkpoint(checkpoint + "2", 0)
    _, args, aux = mx.model.load_checkpoint(checkpoint + "2", 0)
    assert {n: a.shape for n, a in args.items()} == {n: a.shape for n, a in parameters()[0].items()}
    assert list(aux) == ["bn_moving_mean", "bn_moving_var"]


def test_a_missing_parameter_of_a_checkpoint_is_named(tmp_path: Path) -> None:
    args, aux = parameters()
    args["fc1_wieght"] = args.pop("fc1_weight")
    mx.model.save_checkpoint(str(tmp_path / "net"), 0, network(), args, aux)
    module = mx.mod.Module.load(str(tmp_path / "net"), 0)
    with pytest.raises(ParameterError, match=r"'fc1_weight'(?s:.)*'fc1_wieght'"):
        module.bind([("data", (2, 5))], for_training=False)


def test_negative_epochs_and_bare_names(tmp_path: Path) -> None:
    args, aux = parameters()
    prefix = str(tmp_path / "net")
    mx.model.save_checkpoint(prefix, -1, network(), args, aux)
    assert Path(prefix + "--001.params").exists()
    assert list(mx.model.load_params(prefix, -1)[1]) == list(aux)
    nd.save(prefix + "-0000.params", args | aux)
    block = mx.gluon.SymbolBlock.imports(prefix + "-symbol.json", "data", prefix + "-0000.params")
    np.testing.assert_allclose(block(nd.array(data())).asnumpy(), by_hand(data(), args, aux), rtol=1e-4, atol=1e-6)


def test_wrong_names_list_the_true_ones(checkpoint: str) -> None:
    files = checkpoint + "-symbol.json", checkpoint + "-0007.params"
    with pytest.raises(InputError, match="'data'"):
        mx.gluon.SymbolBlock.imports(files[0], ["dta"], files[1])
    with pytest.raises(InputError, match="data"):
        mx.mod.Module(network(), data_names=["x"])
    wrong = {"arg:" + n: a for n, a in parameters()[0].items()} | {"zz": nd.ones((1,))}
    nd.save(checkpoint + "-0008.params", wrong)
    with pytest.raises(ParameterError, match=r"does not have(?s:.)*zz"):
        mx.gluon.SymbolBlock.imports(files[0], ["data"], checkpoint + "-0008.params", allow_missing=True)


def test_a_block_runs_composes_and_exports(checkpoint: str, tmp_path: Path) -> None:
    block = mx.gluon.SymbolBlock.imports(checkpoint + "-symbol.json", ["data"], checkpoint + "-0007.params")
    block.hybridize()
    want = by_hand(data(3), *parameters())
    np.testing.assert_allclose(block(nd.array(data(3))).asnumpy(), want, rtol=1e-4, atol=1e-6)
    assert block(sym.var("x") * 2).list_arguments()[0] == "x"
    assert "softmax_label" not in block.collect_params()
    assert list(block.collect_params(".*_bias")) == ["fc1_bias", "fc2_bias"]
    block.collect_params()["fc2_bias"].set_data(nd.array([9, 0, 0]))
    assert block(nd.array(data(3))).asnumpy()[:, 0].min() > want[:, 0].min()
    files = block.export(str(tmp_path / "out"), 3)
    again = mx.gluon.SymbolBlock.imports(files[0], ["data"], files[1])
    np.testing.assert_array_equal(again(nd.array(data(3))).asnumpy(), block(nd.array(data(3))).asnumpy())
    with pytest.raises(InputError, match="NDArray"):
        block(data(3))


def test_blocks_are_shared_between_threads(checkpoint: str) -> None:
    block = mx.gluon.SymbolBlock.imports(checkpoint + "-symbol.json", ["data"], checkpoint + "-0007.params")
    faults: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for n in (1, 2, 3):
                got = block(nd.array(data(n, seed))).asnumpy()
                np.testing.assert_allclose(got, by_hand(data(n, seed), *parameters()), rtol=1e-4, atol=1e-6)
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=work, args=(s,)) for s in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not faults


def test_buckets_share_parameters() -> None:
    def generate(steps: int) -> tuple[mx.sym.Symbol, list[str], list[str]]:
        summed = sym.sum(sym.var("data"), axis=1)
        return sym.FullyConnected(summed, num_hidden=1, name="fc") + steps, ["data"], []

    module = mx.mod.BucketingModule(generate, default_bucket_key=4)
    module.bind([("data", (1, 4, 2))], for_training=False)
    module.set_params({"fc_weight": nd.ones((1, 2)), "fc_bias": nd.zeros((1,))}, {})
    for key in (4, 2):
        shape = [("data", (1, key, 2))]
        module.forward(mx.io.DataBatch([nd.ones((1, key, 2))], bucket_key=key, provide_data=shape))
        assert module.get_outputs()[0].asnumpy().tolist() == [[3.0 * key]]
    module.set_params({"fc_weight": nd.zeros((1, 2)), "fc_bias": nd.zeros((1,))}, {})
    module.forward(mx.io.DataBatch([nd.ones((1, 2, 2))], bucket_key=2, provide_data=[("data", (1, 2, 2))]))
    assert module.get_outputs()[0].asnumpy().tolist() == [[2.0]]


def test_feed_forward_predicts(checkpoint: str) -> None:
    model = mx.model.FeedForward.load(checkpoint, 7)
    np.testing.assert_allclose(model.predict(data(3)), by_hand(data(3), *parameters()), rtol=1e-4, atol=1e-6)


def test_initializers_fill_by_name() -> None:
    module = mx.mod.Module(network())
    module.bind([("data", (2, 5))], for_training=False)
    mx.random.seed(0)
    module.init_params(mx.init.Xavier())
    args, aux = module.get_params()
    assert args["fc1_bias"].asnumpy().tolist() == [0] * 4
    assert args["bn_gamma"].asnumpy().tolist() == [1] * 3
    assert aux["bn_moving_var"].asnumpy().tolist() == [1] * 3
    weight = args["fc1_weight"].asnumpy()
    assert 0 < np.abs(weight).max() <= np.sqrt(3 / 4.5)
    assert mx.init.Xavier().dumps() == '["xavier", {"rnd_type": "uniform", "factor_type": "avg", "magnitude": 3}]'
    assert sym.var("w", init=mx.init.One()).list_attr() == {"__init__": '["one", {}]'}
    with pytest.raises(RequantError, match="'xavier'"):
        mx.init.create("xavir")


def test_iterators_of_files(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("1,2\n3,4\n5,6\n")
    batches = list(mx.io.CSVIter(str(tmp_path / "x.csv"), (2,), batch_size=2))
    assert [b.pad for b in batches] == [0, 1]
    assert batches[1].data[0].asnumpy().tolist() == [[5, 6], [1, 2]]
    (tmp_path / "i").write_bytes(b"\x00\x00\x08\x03" + np.array([2, 2, 2], ">i4").tobytes() + bytes(range(8)))
    (tmp_path / "l").write_bytes(b"\x00\x00\x08\x01" + np.array([2], ">i4").tobytes() + bytes([1, 0]))
    iterator = mx.io.MNISTIter(str(tmp_path / "i"), str(tmp_path / "l"), batch_size=2, shuffle=False)
    batch = iterator.next()
    assert batch.data[0].shape == (2, 1, 2, 2)
    assert batch.label[0].asnumpy().tolist() == [1, 0]
    (tmp_path / "l").write_bytes(b"junk")
    with pytest.raises(RequantError, match="IDX"):
        mx.io.MNISTIter(str(tmp_path / "i"), str(tmp_path / "l"))


@pytest.mark.shared
def test_lenet_of_2015_scores_what_it_scored() -> None:
    models = Path(__file__).parents[3] / "shared" / "models"
    if not models.exists():
        pytest.skip("trained models are not here")
    with np.load(models.parent / "data" / "images" / "mnist_test2k.npz") as file:
        images, labels = file["x"].astype(np.float32) / 255, file["y"]
    module = mx.mod.Module.load(str(models / "mnist-lenet-0"), 10)
    iterator = mx.io.NDArrayIter(images, labels, batch_size=250)
    module.bind(iterator.provide_data, iterator.provide_label, for_training=False)
    assert module.score(iterator, "acc") == [("accuracy", 0.9855)]


def test_autograd_records_nothing() -> None:
    with mx.autograd.train_mode(), mx.autograd.pause():
        assert not mx.autograd.is_training()
    for call in (mx.autograd.record, mx.autograd.backward, lambda: mx.autograd.set_recording(True)):
        with pytest.raises(UnsupportedError, match="trained models"):
            call()
