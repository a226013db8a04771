"""What to do about operations that have no spiking form with this neuron."""

from __future__ import annotations

CLIP = (
    "train with nn.ReLU, nn.ReLU6 or ratenorm.RateNorm in its place (fine-tuning for a few epochs usually suffices; "
    "ratenorm.adapt(model) replaces modules such as GELU and SiLU)"
)
_NORM = "use BatchNorm, whose statistics are fixed in inference and can be folded into the weights"
_READOUT = (
    "leave it out of the network that is converted: the largest logit stays the largest; apply it to the mean "
    "output after simulation if probabilities are needed"
)

_RECURRENT = "recurrent layers keep analog state; only feed-forward networks can be converted"
_PRODUCT = "a product of two values of the network has no spiking form; a product with a fixed matrix has one"
_PLACES = "use max-pooling whose windows share the map evenly, or amax over the whole map"

_BY_NAME: dict[str, str] = {  # where a part of the name would mislead
    "elu": CLIP,
    "elu_": CLIP,
    "celu": CLIP,
    "selu": CLIP,
    "bilinear": _PRODUCT,
    "upsamplingbilinear2d": "use nearest-neighbour upsampling",
    "upsample_bilinear": "use nearest-neighbour upsampling",
    "bmm": _PRODUCT,
    "baddbmm": _PRODUCT,
    "outer": _PRODUCT,
    "adaptive_max_pool1d_with_indices": _PLACES,
    "adaptive_max_pool2d_with_indices": _PLACES,
}

_BY_WORD: tuple[tuple[str, str], ...] = (
    ("softmax", _READOUT),
    (
        "attention",
        "attention multiplies two activations with each other, which spikes of this neuron cannot do; convert "
        "the convolutional part alone",
    ),
    ("transformer", "convert the convolutional part alone; attention multiplies two activations"),
    ("layernorm", _NORM),
    ("layer_norm", _NORM),
    ("groupnorm", _NORM),
    ("group_norm", _NORM),
    ("instancenorm", _NORM),
    ("instance_norm", _NORM),
    ("rmsnorm", _NORM),
    ("rms_norm", _NORM),
    ("normalize", _NORM),
    ("lstm", _RECURRENT),
    ("gru", _RECURRENT),
    ("rnn", _RECURRENT),
    ("sigmoid", CLIP),
    ("tanh", CLIP),
    ("gelu", CLIP),
    ("silu", CLIP),
    ("swish", CLIP),
    ("mish", CLIP),
    ("relu", CLIP),
    ("softplus", CLIP),
    ("threshold", CLIP),
    ("shrink", CLIP),
    ("clamp", CLIP),
    ("convtranspose", "use nearest-neighbour upsampling followed by a convolution"),
    ("conv_transpose", "use nearest-neighbour upsampling followed by a convolution"),
    ("conv3d", "only Conv1d and Conv2d are supported"),
    ("embedding", "spikes carry no indices; convert the part of the network behind the embedding"),
    ("matmul", _PRODUCT),
    ("mul", _PRODUCT),
)


def remedy_for(called: str) -> str:
    """The remedy for an operation of this name."""
    name = called.lower().removeprefix("_")
    if name in _BY_NAME:
        return _BY_NAME[name]
    for word, remedy in _BY_WORD:
        if word in name:
            return remedy
    return (
        "express it by supported operations (convolution, linear, BatchNorm, pooling, addition, concatenation, "
        "reshaping, ReLU-like clips), or keep it outside the network that is converted"
    )
