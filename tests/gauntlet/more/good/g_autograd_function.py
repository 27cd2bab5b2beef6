class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        ctx.save_for_backward(x, weight, bias)
        ctx.eps = eps
        return right(x, weight, bias, eps)

    @staticmethod
    def backward(ctx, *gradients):
        raise NotImplementedError("forward only")


def kernel_fn(x, weight, bias, eps=1e-5):
    return Norm.apply(x, weight, bias, eps)
