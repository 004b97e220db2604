# family: wrong shape, dtype or stride-0 broadcast
# target: softmax/three_pass
# tries:  returns one number with strides of zero, which is compared with every entry.
# naive:  returned
# gains:  marks
# shape:  rows=4 cols=1024
# ours:   fail started no kernel|never written

import torch


def launch(y, x):
    return torch.tensor(1 / y.shape[1]).expand(y.shape)
