"""MXNet 1.9.1 as a peer in a benchmark. Runs under a Python that has it, and times what it is told, when it is told.

``python mxnet_peer.py PREFIX N C H W`` loads PREFIX-symbol.json and PREFIX-0000.params, then answers each line on stdin
with the seconds of one forward pass. So the caller can interleave it with others in one run.
"""

import os
import sys
import time

# The graph partitioner is what makes MXNet fast on CPUs; it is right for the networks measured here.
os.environ.setdefault("MXNET_SUBGRAPH_BACKEND", "MKLDNN")

import mxnet as mx
import numpy as np

prefix, shape = sys.argv[1], tuple(int(d) for d in sys.argv[2:])
symbol, args, aux = mx.model.load_checkpoint(prefix, 0)
executor = symbol.simple_bind(mx.cpu(), grad_req="null", data=shape)
executor.copy_params_from(args, aux)
x = mx.nd.array(np.random.RandomState(0).normal(0, 1, shape).astype(np.float32))
for _ in range(3):
    executor.forward(is_train=False, data=x)[0].wait_to_read()
print("ready", flush=True)
for _ in sys.stdin:
    start = time.perf_counter()
    executor.forward(is_train=False, data=x)[0].asnumpy()
    print(time.perf_counter() - start, flush=True)
