"""Translate every kernel that one training step and an evaluation launch, for a GPU that is not here.

The interpreter, under which the other tests run, takes much that the compiler refuses. This is the compiler's first
stage, where it does; the later ones take a second for each kernel. Run by ``test_kernels_compile.py`` in a process
without the interpreter; prints how many different kernels were translated.
"""

import sys

import torch
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.runtime.jit import JITFunction

from holdfast.train.encoders.resnet import CifarResNet

TARGET = GPUTarget("cuda", 90, 32)
BACKEND = make_backend(TARGET)
TYPES = {torch.bfloat16: "bf16", torch.float32: "fp32", torch.int64: "i64", torch.uint8: "u8"}
translated = set()


def translate_instead_of_launching(self, *args, grid, warmup, **kwargs):
    given = dict(zip(self.arg_names, args), **kwargs)
    constant = {parameter.name for parameter in self.params if parameter.is_constexpr}
    signature = {name: "constexpr" if name in constant else type_of(given[name]) for name in self.arg_names}
    constants = {(self.arg_names.index(name),): given[name] for name in constant}
    key = (self.fn.__name__, str(signature), str(sorted(constants.items())))
    if key not in translated:
        translate(ASTSource(self, signature, constants))
        translated.add(key)


def translate(source: ASTSource) -> None:
    context, options = ir.context(), BACKEND.parse_options(source.parse_options())
    ir.load_dialects(context)
    BACKEND.load_dialects(context)
    implementations, modules = BACKEND.get_codegen_implementation(options), BACKEND.get_module_map()
    source.make_ir(TARGET, options, implementations, modules, context)


def type_of(value) -> str:
    if isinstance(value, torch.Tensor):
        return f"*{TYPES[value.dtype]}"
    return "fp32" if isinstance(value, float) else "i32"


JITFunction.run = translate_instead_of_launching

from papers.kernels.batch_norm import fused_batch_norm  # noqa: E402
from papers.kernels.cifar_resnet import FusedCifarResNet  # noqa: E402
from papers.kernels.grouped_convolution import grouped_convolution  # noqa: E402
from papers.kernels.squeeze_excite import batch_norm_squeeze_excite, squeeze_excite_add  # noqa: E402
from papers.kernels.stem import max_pool, stem_convolution  # noqa: E402
from papers.networks.squeeze_excite import SqueezeExcitation  # noqa: E402

network = CifarResNet(blocks=2, in_channels=3).to(memory_format=torch.channels_last)
images = torch.randn(2, 3, 32, 32)
for by_rows in (False, True):
    FusedCifarResNet(network.train(), by_rows=by_rows)(images).sum().backward()
    with torch.no_grad():
        FusedCifarResNet(network.eval(), by_rows=by_rows)(images)
for groups, size, stride in ((2, 32, 1), (4, 32, 1), (10, 32, 2), (10, 16, 1), (24, 16, 2), (24, 8, 1), (5, 8, 1)):
    weight = torch.empty(16 * groups, 16, 3, 3).to(memory_format=torch.channels_last).requires_grad_()
    x = torch.empty(32, 16 * groups, size, size, dtype=torch.bfloat16).to(memory_format=torch.channels_last)
    grouped_convolution(x.requires_grad_(), weight, stride).sum().backward()
for channels, size in ((64, 32), (160, 16), (32, 6), (2048, 1)):
    for dtype in (torch.bfloat16, torch.float32):
        y, residual = (torch.empty(4, channels, size, size, dtype=dtype, requires_grad=True) for _ in range(2))
        norm, weigh = torch.nn.BatchNorm2d(channels), SqueezeExcitation(channels, 16).to(dtype)
        for options in ({}, {"residual": residual}, {"relu": False}):
            out = fused_batch_norm(norm, y, **options)
            torch.autograd.backward(out, (y.detach(), y.detach()), retain_graph=True)
            out[0].sum().backward()
        batch_norm_squeeze_excite(norm, weigh, y).sum().backward()
        out = squeeze_excite_add(weigh, y, residual)
        torch.autograd.backward(out, (y.detach(), y.detach()), retain_graph=True)
        out[0].sum().backward()
        with torch.no_grad():
            fused_batch_norm(norm.eval(), y), fused_batch_norm(norm, y, residual), fused_batch_norm(norm, y, relu=False)
            batch_norm_squeeze_excite(norm, weigh, y)
for dtype in (torch.bfloat16, torch.float32):
    stem_convolution(torch.empty(4, 3, 64, 64), torch.empty(64, 3, 7, 7, dtype=dtype))
    out = max_pool(torch.nn.MaxPool2d(3, 2, 1), torch.empty(4, 64, 32, 32, dtype=dtype, requires_grad=True))
    torch.autograd.backward(out, out, retain_graph=True)
    out[0].sum().backward()
sys.stdout.write(f"{len(translated)}\n")
