"""Tangent kernels of other people's modules: whatever of the packages below is installed.

    python benchmarks/outside_modules.py [--json] [--package timm --package torch] [--only GPT2]

Each module, small and in double precision, on four inputs: K, K v and the trace beside J J^T, J by
plain differentiation of one sample after the other; twenty calls of each; parameters, buffers and
attributes afterwards as before, and a deep copy that can be made. A module that is refused has its
line with the refusal. Some compute in single precision on the way, whatever their parameters, and
some have operations for no other: they are marked, and agree up to that. Modules of a package run
in a process of their own, which is begun anew where one of them ends it.
"""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import json
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from _common import Report, parser, progress
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

INPUTS, CLASSES, CALLS = 4, 3, 20
Built = tuple[Any, Any]


class Picked(nn.Module):
    """A module whose outputs are picked, or that takes its input by a name."""

    def __init__(self, module: Any, pick: Callable[[Any], Any], name: str | None = None) -> None:
        super().__init__()
        self.module, self.pick, self.name = module, pick, name

    def forward(self, x: Any) -> Any:
        return self.pick(self.module(**{self.name: x}) if self.name else self.module(x))


def tokens(length: int = 9) -> Any:
    return torch.randint(3, 40, (INPUTS, length))


def images(size: int = 32, channels: int = 3) -> Any:
    return torch.randn(INPUTS, channels, size, size)


# ---- torch itself: what people put around and into their networks


class Recurrent(nn.Module):
    def __init__(self, kind: Any, **options: Any) -> None:
        super().__init__()
        self.cell = kind(4, 6, num_layers=2, batch_first=True, **options)
        self.head = nn.Linear(6 * (1 + bool(options.get("bidirectional"))), CLASSES)

    def forward(self, x: Any) -> Any:
        return self.head(self.cell(x)[0][:, -1])


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Any) -> Any:
        return self.head(self.attention(x, x, x)[0].mean(1))


class OwnGradient(torch.autograd.Function):
    """x^3 with a backward that leaves no record of its own."""

    @staticmethod
    def forward(context: Any, x: Any) -> Any:
        context.x = x.detach().numpy()
        return torch.from_numpy(context.x**3)

    @staticmethod
    def backward(context: Any, g: Any) -> Any:
        return torch.from_numpy(3.0 * context.x**2 * g.detach().numpy())


class ThroughNumpy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 5), nn.Linear(5, CLASSES)

    def forward(self, x: Any) -> Any:
        return self.last(OwnGradient.apply(self.first(x)))


class Converting(nn.Module):
    """Converts a layer of its own at each call, as experts of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 5), nn.Linear(5, CLASSES)

    def forward(self, x: Any) -> Any:
        self.head = self.head.to(x.dtype)
        return self.head(torch.tanh(self.body(x)))


class Centred(nn.Module):
    """Centres batches above two."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 5), nn.Linear(5, CLASSES)

    def forward(self, x: Any) -> Any:
        hidden = torch.tanh(self.body(x))
        return self.head(hidden - hidden.mean(0) if len(hidden) > 2 else hidden)


class Paired(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pairs = nn.Bilinear(4, 4, CLASSES)

    def forward(self, x: Any) -> Any:
        return self.pairs(x, torch.tanh(x))


def mlp(around: Callable[[Any], Any] = lambda layer: layer) -> Any:
    return nn.Sequential(around(nn.Linear(4, 6)), nn.Tanh(), nn.Linear(6, CLASSES))


def pruned() -> Any:
    from torch.nn.utils import prune

    return mlp(lambda layer: prune.random_unstructured(layer, "weight", amount=0.5))


def vectors() -> Any:
    return torch.randn(INPUTS, 4)


def sequences() -> Any:
    return torch.randn(INPUTS, 5, 4)


def of_torch() -> dict[str, Callable[[], Built]]:
    from torch.nn import utils

    encoder = {"nhead": 2, "dim_feedforward": 12, "batch_first": True}
    decoded = nn.Sequential(
        nn.ConvTranspose2d(3, 4, 3, stride=2), nn.ELU(), nn.AdaptiveAvgPool2d(1)
    )
    return {
        "LSTM": lambda: (Recurrent(nn.LSTM), sequences()),
        "LSTM both ways": lambda: (Recurrent(nn.LSTM, bidirectional=True), sequences()),
        "LSTM with projections": lambda: (
            nn.Sequential(
                Picked(nn.LSTM(4, 6, proj_size=3, batch_first=True), lambda out: out[0][:, -1])
            ),
            sequences(),
        ),
        "GRU": lambda: (Recurrent(nn.GRU), sequences()),
        "MultiheadAttention": lambda: (Attending(), torch.randn(INPUTS, 5, 8)),
        "TransformerEncoder": lambda: (
            nn.Sequential(
                nn.TransformerEncoder(nn.TransformerEncoderLayer(8, **encoder), 2),
                nn.Flatten(),
                nn.Linear(40, CLASSES),
            ),
            torch.randn(INPUTS, 5, 8),
        ),
        "ConvTranspose2d": lambda: (
            nn.Sequential(decoded, nn.Flatten(), nn.Linear(4, CLASSES)),
            images(6),
        ),
        "EmbeddingBag": lambda: (
            nn.Sequential(nn.EmbeddingBag(40, 5), nn.Linear(5, CLASSES)),
            tokens(6),
        ),
        "Bilinear": lambda: (Paired(), vectors()),
        "weight norm": lambda: (mlp(utils.parametrizations.weight_norm), vectors()),
        "weight norm, old": lambda: (mlp(_old_weight_norm), vectors()),
        "spectral norm": lambda: (mlp(utils.parametrizations.spectral_norm), vectors()),
        "spectral norm, old": lambda: (mlp(utils.spectral_norm), vectors()),
        "orthogonal": lambda: (mlp(utils.parametrizations.orthogonal), vectors()),
        "pruned": lambda: (pruned(), vectors()),
        "compiled": lambda: (torch.compile(mlp()), vectors()),
        "a compiled part": lambda: (
            nn.Sequential(
                nn.Linear(4, 4), torch.compile(mlp(), backend="aot_eager"), nn.Linear(CLASSES, 2)
            ),
            vectors(),
        ),
        "DataParallel": lambda: (nn.DataParallel(mlp()), vectors()),
        "a backward through NumPy": lambda: (ThroughNumpy(), vectors()),
        "converts itself": lambda: (Converting(), vectors()),
        "centres batches above two": lambda: (Centred(), vectors()),
        "dropout in training": lambda: (
            nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), nn.Linear(6, CLASSES)),
            vectors(),
        ),
        "half precision": lambda: (mlp().half(), vectors().half()),
    }


def _old_weight_norm(layer: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nn.utils.weight_norm(layer)


# ---- packages

_SMALL = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 32,
    "num_labels": CLASSES,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_GPT = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32}
_T5 = {
    "d_model": 16,
    "d_kv": 8,
    "d_ff": 24,
    "num_layers": 2,
    "num_heads": 2,
    "decoder_start_token_id": 0,
}
_HEADS = {"num_key_value_heads": 1, "head_dim": 8}
_BART = {
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
}
_MOE = {**_HEADS, "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2}
#: by the name of the configuration: what it needs beside the sizes above
_SENTENCES: dict[str, dict[str, Any]] = {
    "GPT2": _GPT,
    "GPTNeoX": {},
    "GPTJ": {**_GPT, "rotary_dim": 4},
    "GPTBigCode": _GPT,
    "OPT": {"ffn_dim": 24, "word_embed_proj_dim": 16},
    "Bloom": {"n_layer": 2, "n_head": 2},
    "Mpt": {"d_model": 16, "n_heads": 2, "n_layers": 2, "max_seq_len": 32},
    "Falcon": {},
    "Phi": {},
    "Bert": {},
    "Roberta": {"max_position_embeddings": 48},
    "DistilBert": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24},
    "Albert": {"embedding_size": 8},
    "Electra": {"embedding_size": 8},
    "Deberta": {},
    "DebertaV2": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    "ConvBert": {"embedding_size": 16, "head_ratio": 1, "conv_kernel_size": 3},
    "SqueezeBert": {"embedding_size": 16, **{f"{p}_groups": 1 for p in ("q", "k", "v")}},
    "FNet": {},
    "MobileBert": {"embedding_size": 8, "intra_bottleneck_size": 8, "true_hidden_size": 8},
    "ModernBert": {"local_attention": 4},
    "XLNet": {
        "d_model": 16,
        "n_layer": 2,
        "n_head": 2,
        "d_inner": 24,
        "max_position_embeddings": None,
    },
    "Llama": _HEADS,
    "Mistral": _HEADS,
    "Qwen2": _HEADS,
    "Qwen3": _HEADS,
    "Gemma2": _HEADS,
    "Olmo2": _HEADS,
    "Mixtral": _MOE,
    "Qwen2Moe": {
        **_MOE,
        "moe_intermediate_size": 12,
        "shared_expert_intermediate_size": 12,
    },
    "GptOss": _MOE,
    "T5": _T5,
    "Bart": _BART,
}
_SWIN = {
    "image_size": 32,
    "patch_size": 4,
    "embed_dim": 8,
    "depths": [1, 1],
    "num_heads": [1, 2],
    "window_size": 4,
    **dict.fromkeys(("hidden_size", "num_hidden_layers", "num_attention_heads")),
}
_STAGES = {"hidden_sizes": [8, 16], "depths": [1, 1], "hidden_size": None}
_PICTURES: dict[str, dict[str, Any]] = {
    "ViT": {"image_size": 32, "patch_size": 8},
    "DeiT": {"image_size": 32, "patch_size": 8},
    "Beit": {"image_size": 32, "patch_size": 8, "use_relative_position_bias": True},
    "Dinov2": {"image_size": 32, "patch_size": 8},
    "Swin": _SWIN,
    "Swinv2": _SWIN,
    "ConvNext": {**_STAGES, "num_stages": 2},
    "ConvNextV2": {**_STAGES, "num_stages": 2},
    "ResNet": {**_STAGES, "embedding_size": 8},
    "MobileNetV2": {"depth_multiplier": 0.25, "image_size": 32},
    "EfficientNet": {"width_coefficient": 0.2, "depth_coefficient": 0.2, "hidden_dim": 256},
    "Segformer": {
        "num_encoder_blocks": 2,
        "depths": [1, 1],
        "sr_ratios": [2, 1],
        "hidden_sizes": [8, 16],
        "hidden_size": None,
        "patch_sizes": [7, 3],
        "strides": [4, 2],
        "num_attention_heads": [1, 2],
        "mlp_ratios": [2, 2],
    },
    "PoolFormer": {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1], "hidden_size": None},
    "FocalNet": {**_STAGES, "image_size": 32, "embed_dim": 8},
    "MobileViT": {
        "image_size": 64,
        "hidden_sizes": [12, 16, 20],
        "hidden_size": None,
        "neck_hidden_sizes": [4, 4, 8, 8, 16, 16, 24],
        "num_attention_heads": 2,
    },
}


def _classifier(name: str, kind: str, options: dict[str, Any]) -> Any:
    import transformers

    given = {key: value for key, value in (_SMALL | options).items() if value is not None}
    config = getattr(transformers, f"{name}Config")(**given)
    return getattr(transformers, f"{name}For{kind}Classification")(config)


def _logits(found: Any) -> Any:
    return found.logits


def of_transformers() -> dict[str, Callable[[], Built]]:
    import transformers

    transformers.logging.set_verbosity_error()
    found: dict[str, Callable[[], Built]] = {}
    for name, options in _SENTENCES.items():
        found[name] = lambda name=name, options=options: (
            Picked(_classifier(name, "Sequence", options), _logits),
            _ended(tokens()),
        )
    for name, options in _PICTURES.items():
        found[name] = lambda name=name, options=options: (
            Picked(_classifier(name, "Image", options), _logits),
            images(int(options.get("image_size", 32))),
        )

    def mamba() -> Built:
        config = transformers.MambaConfig(**{**_SMALL, "state_size": 4})
        module = transformers.MambaForCausalLM(config)
        return Picked(module, lambda found: found.logits[:, -1, :CLASSES]), tokens()

    def switch() -> Built:
        config = transformers.SwitchTransformersConfig(
            **{
                **_SMALL,
                **_T5,
                "num_experts": 2,
                "expert_capacity": 2,
                "num_sparse_encoder_layers": 1,
            }
        )
        module = transformers.SwitchTransformersEncoderModel(config)
        return Picked(module, lambda found: found.last_hidden_state[:, -1, :CLASSES]), tokens()

    def wav2vec2() -> Built:
        config = transformers.Wav2Vec2Config(
            **_SMALL,
            conv_dim=(8, 8),
            conv_stride=(4, 4),
            conv_kernel=(8, 4),
            num_feat_extract_layers=2,
            num_conv_pos_embeddings=4,
            num_conv_pos_embedding_groups=2,
            classifier_proj_size=8,
        )
        module = transformers.Wav2Vec2ForSequenceClassification(config)
        return Picked(module, _logits), torch.randn(INPUTS, 400)

    return found | {"Mamba": mamba, "SwitchTransformers": switch, "Wav2Vec2": wav2vec2}


def _ended(sentences: Any) -> Any:
    """The last token ends the sentence, as encoders and decoders want it."""
    sentences[:, -1] = 2
    return sentences


def of_timm() -> dict[str, Callable[[], Built]]:
    import timm

    names = (
        "test_resnet",
        "test_efficientnet",
        "test_vit",
        "test_vit2",
        "test_vit3",
        "test_mambaout",
        "test_nfnet",
        "test_convnext",
        "test_byobnet",
        "test_efficientformerv2_s0",
    )
    known = set(timm.list_models())

    def build(name: str) -> Built:
        module = timm.create_model(name, num_classes=CLASSES)
        fixed = module.default_cfg.get("fixed_input_size")
        return module, images(module.default_cfg["input_size"][-1] if fixed else 64)

    def mixed(kind: Any, **more: Any) -> Built:
        sizes = {"img_size": 32, "patch_size": 8, "num_blocks": 2, "embed_dim": 16, **more}
        module = timm.models.mlp_mixer.MlpMixer(num_classes=CLASSES, block_layer=kind, **sizes)
        return module, images()

    blocks = timm.models.mlp_mixer
    found: dict[str, Callable[[], Built]] = {
        name: lambda name=name: build(name) for name in names if name in known
    }
    return found | {
        "mixer": lambda: mixed(blocks.MixerBlock),
        "gMLP": lambda: mixed(
            blocks.SpatialGatingBlock, mlp_ratio=2, mlp_layer=timm.layers.GatedMlp
        ),
        "ResMLP": lambda: mixed(blocks.ResBlock, mlp_ratio=2),
    }


def of_vit_pytorch() -> dict[str, Callable[[], Built]]:
    import vit_pytorch
    from vit_pytorch import (
        cait,
        cct,
        deepvit,
        mobile_vit,
        regionvit,
        simple_vit,
        vit_for_small_dataset,
    )

    plain = {"image_size": 32, "patch_size": 8, "num_classes": CLASSES, "dim": 16, "depth": 2}
    headed = {**plain, "heads": 2, "mlp_dim": 24}
    return {
        "ViT": lambda: (vit_pytorch.ViT(**headed), images()),
        "ViT, pool mean": lambda: (vit_pytorch.ViT(**headed, pool="mean"), images()),
        "SimpleViT": lambda: (simple_vit.SimpleViT(**headed), images()),
        "DeepViT": lambda: (deepvit.DeepViT(**headed), images()),
        "CaiT": lambda: (cait.CaiT(**headed, cls_depth=1), images()),
        "ViT for small datasets": lambda: (vit_for_small_dataset.ViT(**headed), images()),
        "CCT": lambda: (
            cct.CCT(
                img_size=32,
                embedding_dim=16,
                n_conv_layers=1,
                kernel_size=7,
                stride=4,
                padding=3,
                pooling_kernel_size=3,
                pooling_stride=2,
                pooling_padding=1,
                num_layers=2,
                num_heads=2,
                mlp_ratio=2.0,
                num_classes=CLASSES,
                positional_embedding="learnable",
            ),
            images(),
        ),
        "MobileViT": lambda: (
            mobile_vit.MobileViT(
                image_size=(64, 64),
                dims=[12, 16, 20],
                channels=[4, 4, 8, 8, 8, 8, 8, 8, 8, 8, 16],
                num_classes=CLASSES,
            ),
            images(64),
        ),
        "RegionViT": lambda: (
            regionvit.RegionViT(
                dim=(8, 8, 16, 16),
                depth=(1, 1, 1, 1),
                window_size=2,
                num_classes=CLASSES,
                tokenize_local_3_conv=False,
                use_peg=False,
            ),
            images(64),
        ),
    }


def of_x_transformers() -> dict[str, Callable[[], Built]]:
    from x_transformers import Decoder, Encoder, TransformerWrapper, ViTransformerWrapper

    def language(**options: Any) -> Built:
        layers = Decoder(dim=16, depth=2, heads=2, attn_dim_head=8, **options)
        module = TransformerWrapper(num_tokens=40, max_seq_len=16, attn_layers=layers)
        return Picked(module, lambda out: out[:, -1, :CLASSES]), tokens()

    def vision() -> Built:
        layers = Encoder(dim=16, depth=2, heads=2, attn_dim_head=8)
        return (
            ViTransformerWrapper(
                image_size=32, patch_size=8, num_classes=CLASSES, attn_layers=layers
            ),
            images(),
        )

    return {
        "Decoder": language,
        "rotary": lambda: language(rotary_pos_emb=True),
        "ALiBi": lambda: language(alibi_pos_bias=True, alibi_num_heads=1),
        "T5 bias": lambda: language(rel_pos_bias=True),
        "GLU, RMSNorm": lambda: language(ff_glu=True, use_rmsnorm=True, ff_no_bias=True),
        "grouped heads": lambda: language(attn_kv_heads=1),
        "memory": lambda: language(attn_num_mem_kv=2),
        "hyper-connections": lambda: language(num_residual_streams=2),
        "vision": vision,
    }


def of_torchdiffeq() -> dict[str, Callable[[], Built]]:
    import torchdiffeq

    class Flow(nn.Module):
        def __init__(self, solve: Any, method: str) -> None:
            super().__init__()
            self.field, self.head = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nn.Linear(4, CLASSES)
            self.solve, self.method = solve, method

        def forward(self, x: Any) -> Any:
            times = torch.linspace(0.0, 1.0, 5, dtype=x.dtype)
            found = self.solve(lambda t, z: self.field(z), x, times, method=self.method)
            return self.head(found[-1])

    class Adjoint(Flow):
        def forward(self, x: Any) -> Any:
            times = torch.linspace(0.0, 1.0, 5, dtype=x.dtype)
            field = self.field
            found = torchdiffeq.odeint_adjoint(
                lambda t, z: field(z),
                x,
                times,
                method=self.method,
                adjoint_params=tuple(field.parameters()),
            )
            return self.head(found[-1])

    return {
        "rk4": lambda: (Flow(torchdiffeq.odeint, "rk4"), vectors()),
        "dopri5, steps of the batch": lambda: (Flow(torchdiffeq.odeint, "dopri5"), vectors()),
        "rk4, adjoint": lambda: (Adjoint(None, "rk4"), vectors()),
    }


def of_e3nn() -> dict[str, Callable[[], Built]]:
    from e3nn import nn as equivariant
    from e3nn import o3

    class Tensors(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.product = o3.FullyConnectedTensorProduct(
                "2x0e + 1x1o", "1x0e + 1x1o", "4x0e + 1x1o"
            )
            self.linear = o3.Linear("4x0e + 1x1o", f"{CLASSES}x0e")
            self.gate = equivariant.NormActivation("4x0e + 1x1o", torch.tanh)

        def forward(self, x: Any) -> Any:
            return self.linear(self.gate(self.product(x[:, :5], x[:, 5:])))

    return {"tensor product": lambda: (Tensors(), torch.randn(INPUTS, 9))}


def of_peft() -> dict[str, Callable[[], Built]]:
    import peft

    def lora(**options: Any) -> Built:
        config = peft.LoraConfig(r=2, target_modules=["0", "2"], init_lora_weights=False, **options)
        return peft.get_peft_model(mlp(), config), vectors()

    return {"LoRA": lora, "DoRA": lambda: lora(use_dora=True)}


def of_torch_geometric() -> dict[str, Callable[[], Built]]:
    from torch_geometric.nn import DenseGCNConv, DenseSAGEConv

    class Graphs(nn.Module):
        def __init__(self, kind: Any) -> None:
            super().__init__()
            self.first, self.last = kind(4, 6), kind(6, CLASSES)

        def forward(self, x: Any) -> Any:
            ring = torch.eye(x.shape[1], dtype=x.dtype).roll(1, 0)
            near = (ring + ring.T).expand(len(x), -1, -1)
            return self.last(torch.tanh(self.first(x, near)), near).mean(1)

    return {
        "DenseGCNConv": lambda: (Graphs(DenseGCNConv), sequences()),
        "DenseSAGEConv": lambda: (Graphs(DenseSAGEConv), sequences()),
    }


PACKAGES: dict[str, Callable[[], dict[str, Callable[[], Built]]]] = {
    "torch": of_torch,
    "transformers": of_transformers,
    "timm": of_timm,
    "vit_pytorch": of_vit_pytorch,
    "x_transformers": of_x_transformers,
    "torchdiffeq": of_torchdiffeq,
    "e3nn": of_e3nn,
    "peft": of_peft,
    "torch_geometric": of_torch_geometric,
}


# ---- the comparison


def jacobian(module: Any, x: Any) -> Any:
    """(samples * outputs, parameters), one sample after the other."""
    weights = [p for p in module.parameters() if p.requires_grad]
    rows = []
    for sample in range(len(x)):
        for f in module(x[sample : sample + 1]).reshape(-1):
            found = torch.autograd.grad(
                f, weights, retain_graph=True, allow_unused=True, materialize_grads=True
            )
            rows.append(torch.cat([g.to_dense().flatten() for g in found]))
    return torch.stack(rows)


def state(module: Any) -> dict[str, tuple[int, Any]]:
    """All tensors that a module holds, by their names: which they are, and what is in them."""
    return {
        f"{name}.{key}": (id(value), value.detach().clone())
        for name, part in module.named_modules()
        for table in (part._parameters, part._buffers, vars(part))
        for key, value in table.items()
        if isinstance(value, torch.Tensor)
    }


class Precision(TorchDispatchMode):
    """Notes whether a module computes in single precision, whatever its parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.single = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        made = found if isinstance(found, tuple | list) else (found,)
        self.single |= any(
            isinstance(one, torch.Tensor) and one.dtype == torch.float32 and one.numel() > 1
            for one in made
        )
        return found


def relative(found: Any, expected: Any) -> float:
    return float((found - expected).abs().max() / expected.abs().max())


def can_be_copied(module: Any) -> bool:
    try:
        copy.deepcopy(module)
    except RuntimeError:  # older weight norms, before anything of ours
        return False
    return True


def compared(module: Any, x: Any) -> dict[str, Any]:
    from flowbias.ground.arguments import InputError
    from flowbias.kernels import tangent_kernel, tangent_vector_product

    found: dict[str, list[Any]] = {}

    def vector() -> Any:
        outputs = found["K"][0].shape[1] if found else 1
        generator = torch.Generator().manual_seed(0)
        drawn = torch.randn(INPUTS, outputs, generator=generator, dtype=torch.float64)
        return drawn.to(next(module.parameters()).detach())

    answers: dict[str, Callable[[], Any]] = {
        "K": lambda: tangent_kernel(module, x).permute(0, 2, 1, 3),
        "trace": lambda: tangent_kernel(module, x, reduce="trace"),
        "K v": lambda: tangent_vector_product(module, x, vector()),
    }
    before, copied = state(module), can_be_copied(module)
    refused = ""
    for name, answer in answers.items():
        try:
            found[name] = [answer() for _ in range(CALLS)]
        except InputError as error:
            refused = refused or (f"{name}: " if found else "") + str(error)
    after = state(module)
    kept = before.keys() == after.keys() and all(
        one[0] == after[name][0] and torch.equal(one[1], after[name][1])
        for name, one in before.items()
    )
    kept = kept and can_be_copied(module) == copied
    worst = {}
    if found:
        J = jacobian(module, x)
        K = (J @ J.T).view(INPUTS, len(J) // INPUTS, INPUTS, -1)
        expected = {
            "K": K,
            "trace": K.diagonal(dim1=1, dim2=3).sum(-1),
            "K v": torch.einsum("iajb,jb->ia", K, vector()),
        }
        for name, each in found.items():
            worst[name] = max(relative(one, expected[name]) for one in each)
    return {**worst, "untouched": "yes" if kept else "NO", "refused": refused}


def measured(module: Any, x: Any) -> dict[str, Any]:
    """In double precision; in the module's own where it has operations for no other."""
    own = module if next(module.parameters()).dtype == torch.float16 else None
    double = own or copied_in_double(module)
    given = x.double() if x.is_floating_point() and own is None else x
    with contextlib.suppress(Exception), Precision() as precision:
        double(given)
    found = compared(double, given)
    if own is None and found.get("refused", "").startswith(("x1", "module: must have all")):
        found = compared(module, x)
        precision.single = True
    return {**found, "single inside": "yes" if precision.single else ""}


def copied_in_double(module: Any) -> Any:
    """A copy where it can be made, of all that is not converted with it."""
    try:
        return copy.deepcopy(module).double()
    except RuntimeError:
        return module.double()


def child(package: str, names: list[str]) -> None:
    """Prints a line for each module, ahead of it its name: the parent sees where it ended."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    catalogue = PACKAGES[package]()
    for name in names or catalogue:
        print(json.dumps({"begun": name}), flush=True)
        torch.manual_seed(0)
        found: dict[str, Any]
        try:
            module, x = catalogue[name]()
            module.train(name == "dropout in training")
        except Exception as error:
            found = {"not built": f"{type(error).__name__}: {error}"}
        else:
            try:
                found = measured(module, x)
            except Exception as error:
                found = {"FAILED": f"{type(error).__name__}: {error}"}
        print(json.dumps({"module": name, **found}), flush=True)


def lines_of(package: str, only: list[str]) -> Iterator[dict[str, Any]]:
    """What children print; the rest by another one where a module ended the process."""
    if not importlib.util.find_spec(package):
        yield {"package": package, "note": "not installed"}
        return
    names = only
    while True:
        run = subprocess.run(
            [sys.executable, __file__, "--child", package, *names], capture_output=True, text=True
        )
        printed = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
        done = [line for line in printed if "module" in line]
        yield from ({"package": package, **line} for line in done)
        begun = [line["begun"] for line in printed if "begun" in line]
        if not run.returncode:
            return
        if not begun:
            reason = (run.stderr.strip().splitlines() or [""])[-1]
            yield {"package": package, "note": f"cannot be imported: {reason[:80]}"}
            return
        yield {"package": package, "module": begun[-1], "FAILED": f"signal {-run.returncode}"}
        every = names or json.loads(
            subprocess.run(
                [sys.executable, __file__, "--names", package], capture_output=True, text=True
            ).stdout.splitlines()[-1]
        )
        names = every[every.index(begun[-1]) + 1 :]
        if not names:
            return


def shortened(line: dict[str, Any]) -> dict[str, Any]:
    return {k: v[:90] if isinstance(v, str) else v for k, v in line.items()}


def main() -> None:
    if "--child" in sys.argv:
        package, *names = sys.argv[sys.argv.index("--child") + 1 :]
        child(package, names)
        return
    if "--names" in sys.argv:
        print(json.dumps(list(PACKAGES[sys.argv[-1]]())))
        return
    arguments = parser(__doc__)
    arguments.add_argument("--package", action="append", choices=tuple(PACKAGES))
    arguments.add_argument("--only", action="append", default=[], help="a module of the package")
    options = arguments.parse_args()
    found = []
    for package in options.package or PACKAGES:
        progress(package)
        found += list(lines_of(package, options.only))
    report = Report(options.json)
    report.table(
        f"Beside J J^T in double precision, {INPUTS} inputs, {CALLS} calls of each",
        found if options.json else [shortened(line) for line in found],
    )
    report.finish()


if __name__ == "__main__":
    main()
