"""A vision transformer, a character GPT and an LSTM in plain torch, small."""

from __future__ import annotations

from typing import Any

import torch


class Block(torch.nn.Module):
    """Attention and a perceptron, each behind its layer norm and beside the identity."""

    def __init__(self, width: int, heads: int, *, causal: bool, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width)
        )
        self.dropout = torch.nn.Dropout(dropout)

    def forward(self, x: Any) -> Any:
        samples, positions, width = x.shape
        parts = self.qkv(self.norm1(x)).reshape(samples, positions, 3, self.heads, -1)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.dropout(self.out(mixed.transpose(1, 2).reshape(samples, positions, width)))
        return x + self.dropout(self.mlp(self.norm2(x)))


class VisionTransformer(torch.nn.Module):
    """Patches of 4 x 4, a class token, learned positions."""

    def __init__(
        self, side: int = 16, width: int = 64, depth: int = 4, heads: int = 4, classes: int = 10
    ) -> None:
        super().__init__()
        self.patches = torch.nn.Conv2d(3, width, 4, stride=4)
        self.token = torch.nn.Parameter(0.02 * torch.randn(1, 1, width))
        self.places = torch.nn.Parameter(0.02 * torch.randn(1, (side // 4) ** 2 + 1, width))
        self.blocks = torch.nn.Sequential(
            *(Block(width, heads, causal=False) for _ in range(depth))
        )
        self.norm, self.head = torch.nn.LayerNorm(width), torch.nn.Linear(width, classes)

    def forward(self, x: Any) -> Any:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(x), -1, -1), tokens], dim=1) + self.places
        return self.head(self.norm(self.blocks(tokens))[:, 0])


class CharacterGPT(torch.nn.Module):
    """Logits (samples, positions, characters) of the next one."""

    def __init__(
        self,
        characters: int = 41,
        positions: int = 32,
        width: int = 64,
        depth: int = 2,
        heads: int = 4,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(characters, width)
        self.places = torch.nn.Embedding(positions, width)
        self.blocks = torch.nn.Sequential(
            *(Block(width, heads, causal=True, dropout=dropout) for _ in range(depth))
        )
        self.norm = torch.nn.LayerNorm(width)
        self.head = torch.nn.Linear(width, characters, bias=False)

    def forward(self, x: Any) -> Any:
        x = self.words(x) + self.places(torch.arange(x.shape[1], device=x.device))
        return self.head(self.norm(self.blocks(x)))


class LastOfLSTM(torch.nn.Module):
    """Classes from the last state of an LSTM."""

    def __init__(self, inputs: int = 16, width: int = 64, classes: int = 10) -> None:
        super().__init__()
        self.states = torch.nn.LSTM(inputs, width, batch_first=True)
        self.head = torch.nn.Linear(width, classes)

    def forward(self, x: Any) -> Any:
        return self.head(self.states(x)[0][:, -1])
