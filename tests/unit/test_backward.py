"""The emulated engines' backward pass is torch's own, to the last hook."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from aggverify.engines.emulated_session import backward  # noqa: E402


class Own(torch.Tensor):
    """A tensor of a person's own class."""

    passes = 0

    def backward(self) -> None:
        Own.passes += 1


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_it_leaves_what_loss_backward_leaves(dtype: torch.dtype) -> None:
    grads = []
    for run in (backward, lambda loss: loss.backward()):
        leaf = torch.tensor([0.5, -2.0, 3.0], dtype=torch.float64, requires_grad=True)
        for part in ([0, 1], [2]):  # two micro-batches add up
            run((leaf[part].to(dtype) ** 2).sum() / 3)
        grads.append(leaf.grad)
    assert grads[0].tolist() == grads[1].tolist()
    assert grads[0].dtype == torch.float64


def test_hooks_see_their_own_gradient() -> None:
    seen = []
    leaf = torch.tensor([1.0, 2.0], requires_grad=True)
    for _ in range(2):
        loss = leaf.sum()
        loss.register_hook(lambda gradient: seen.append(gradient.item()) or gradient.mul_(2))
        backward(loss)
    assert seen == [1.0, 1.0], "what one hook does in place must not reach the next loss"
    assert leaf.grad.tolist() == [4.0, 4.0]


def test_a_second_pass_through_a_freed_graph_still_fails() -> None:
    leaf = torch.tensor([1.0, 2.0], requires_grad=True)
    loss = (leaf**2).sum()
    backward(loss)
    with pytest.raises(RuntimeError, match="second time"):
        backward(loss)


def test_a_tensor_of_another_class_goes_its_own_way() -> None:
    backward(torch.tensor(1.0, requires_grad=True).as_subclass(Own))
    assert Own.passes == 1
