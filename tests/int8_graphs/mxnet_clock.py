"""MXNet 1.9.1 on one INT8 graph, timed when it is told: ``python mxnet_clock.py NAME`` with a Python that has it.

Each line on stdin is answered with the seconds of one run.
"""

import os
import sys
import time

import mxnet as mx

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import graphs


def main(name):
    symbol = mx.sym.load_json(graphs.text(name).decode())
    args, _, aux = symbol.infer_shape(data=graphs.shape(name))
    listed = list(zip(symbol.list_arguments(), args)) + list(zip(symbol.list_auxiliary_states(), aux))
    params = graphs.parameters(name, {n: s for n, s in listed if n != "data"})
    arrays = {n: mx.nd.array(a) for n, a in params.items()}
    arrays["data"] = mx.nd.array(graphs.image(name))
    bound = symbol.bind(
        mx.cpu(),
        {n: arrays[n] for n in symbol.list_arguments()},
        aux_states={n: arrays[n] for n in symbol.list_auxiliary_states()},
        grad_req="null",
    )

    def run():
        for out in bound.forward(is_train=False, data=arrays["data"]):
            out.wait_to_read()

    run()
    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        run()
        print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
