"""Muon for many small matrices: momentum, then orthogonal updates of 64-row blocks, batched, in float32.

torch.optim.Muon orthogonalises whole matrices one by one in bfloat16, which AVX2 emulates. Blocks of 64 rows (one
attention head) need a sixth of the arithmetic and go through one batched product per width.
"""

import torch

BLOCK_ROWS = 64
ITERATIONS = 4
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # quintic of Jordan et al.
RMS = 0.2  # of an update at learning rate 1, like AdamW's


class BlockMuon(torch.optim.Optimizer):
    """Nesterov momentum with block-orthogonal updates; every matrix needs a multiple of 64 rows."""

    def __init__(self, matrices: list[torch.nn.Parameter], lr: float, momentum: float = 0.95, decay: float = 0.01):
        super().__init__(matrices, {"lr": lr, "momentum": momentum, "decay": decay})

    @torch.no_grad()
    def step(self) -> None:
        """Apply one update to every matrix that has a gradient."""
        for group in self.param_groups:
            by_width: dict[int, list[torch.nn.Parameter]] = {}
            for matrix in group["params"]:
                if matrix.grad is not None:
                    by_width.setdefault(matrix.shape[1], []).append(matrix)
            for width, matrices in by_width.items():
                self._step_width(group, width, matrices)

    def _step_width(self, group: dict, width: int, matrices: list[torch.nn.Parameter]) -> None:
        directions = []
        for matrix in matrices:
            state = self.state[matrix]
            if not state:
                state["momentum"] = torch.zeros_like(matrix)
            state["momentum"].lerp_(matrix.grad, 1 - group["momentum"])
            directions.append(matrix.grad.lerp(state["momentum"], group["momentum"]).view(-1, BLOCK_ROWS, width))
        update = orthogonalise(torch.cat(directions)) * (RMS * max(BLOCK_ROWS, width) ** 0.5)
        parts = update.split([len(direction) for direction in directions])
        for matrix, part in zip(matrices, parts, strict=True):
            matrix.mul_(1 - group["lr"] * group["decay"]).sub_(part.reshape(matrix.shape), alpha=group["lr"])


def orthogonalise(blocks: torch.Tensor) -> torch.Tensor:
    """Nearest semi-orthogonal matrices, approximately; [n, 64, width] to the same."""
    a, b, c = COEFFICIENTS
    x = blocks / (blocks.norm(dim=(1, 2), keepdim=True) + 1e-12)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x
