"""What to do about operations that have no spiking form with this neuron."""

from __future__ import annotations

_CLIP = (
    "train with nn.ReLU, nn.ReLU6 or ratenorm.RateNorm in its place (fine-tuning for a few epochs usually suffices; "
    "ratenorm.adapt(model) replaces modules such as GELU and SiLU)"
)
_NORM = "use BatchNorm, whose statistics are fixed in inference and can be folded into the weights"
_READOUT = (
    "leave it out of the network that is converted: the largest logit stays the largest; apply it to the mean "
    "output after simulation if probabilities are needed"
)

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
    ("lstm", "recurrent layers keep analog state; only feed-forward networks can be converted"),
    ("gru", "recurrent layers keep analog state; only feed-forward networks can be converted"),
    ("rnn", "recurrent layers keep analog state; only feed-forward networks can be converted"),
    ("sigmoid", _CLIP),
    ("tanh", _CLIP),
    ("gelu", _CLIP),
    ("silu", _CLIP),
    ("swish", _CLIP),
    ("elu", _CLIP),
    ("mish", _CLIP),
    ("relu", _CLIP),
    ("softplus", _CLIP),
    ("threshold", _CLIP),
    ("shrink", _CLIP),
    ("clamp", _CLIP),
    ("bilinear", "use nearest-neighbour upsampling"),
    ("convtranspose", "use nearest-neighbour upsampling followed by a convolution"),
    ("conv_transpose", "use nearest-neighbour upsampling followed by a convolution"),
    ("conv3d", "only Conv1d and Conv2d are supported"),
    ("embedding", "spikes carry no indices; convert the part of the network behind the embedding"),
    ("matmul", "a product of two activations has no spiking form; a product with a fixed matrix is nn.Linear"),
    ("mul", "a product of two activations has no spiking form; multiply by constants only"),
)


def remedy_for(called: str) -> str:
    """The remedy for an operation of this name."""
    name = called.lower()
    for word, remedy in _BY_WORD:
        if word in name:
            return remedy
    return (
        "express it by supported operations (convolution, linear, BatchNorm, pooling, addition, concatenation, "
        "reshaping, ReLU-like clips), or keep it outside the network that is converted"
    )
