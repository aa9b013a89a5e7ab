"""One update of the actor-critic, computed a second time: in NumPy, in 64 bits, with gradients by hand.

    update_step.py > tests/oracle/update_step.json

makes the committed file again; a test holds the program's own update against it. The gradients written out
here are themselves held against finite differences before anything is printed.

Nothing is random. Every number comes from `fill`, so that the test can build the same inputs:

- the encoded table has 3 numerics, then one-hot blocks of 3 and 2 places (8 columns); latent 3, 2 classes,
  hidden 5, 6 rows. Weights are [out, in].
- autoencoder, salts 1 to 8: encoder weight, bias, weight, bias, then the decoder's.
- actor, salts 11 to 20, and critic, 31 to 40: weight, bias, gain, shift, weight, bias, gain, shift, weight,
  bias; a gain is 1 + 0.1 * fill.
- the condition c holds a pair (low, high) for each numeric, then the mask of each block.
- the state s is z, y_M, y_T, c.

In the file matrices are lists of rows; gradients and parameters are a flat list for each parameter, in the
order above. `loss.category` is the share of blocks that changed; its gradient is that of 1 - p_own, where
they did.
"""

import json

import numpy

ROWS, NUMERICS, LATENT, CLASSES, HIDDEN = 6, 3, 3, 2, 5
BLOCKS = [slice(3, 6), slice(6, 8)]
WIDTH = 8
CONDITION = 2 * NUMERICS + 3 + 2
STATE = LATENT + 2 * CLASSES + CONDITION
LOW, HIGH = numpy.array([-1.5, -2.0, -1.0]), numpy.array([1.5, 1.0, 2.0])
SPARSITY_WEIGHT = CONSISTENCY_WEIGHT = 0.5
NORM_EPSILON = 1e-5
RATE, BETA_1, BETA_2, ADAM_EPSILON = 1e-3, 0.9, 0.999, 1e-8
DIFFERENCE_STEP = 1e-6
LARGEST_ERROR = 1e-6
DIGITS = 9


def fill(shape, salt):
    count = numpy.prod(shape, dtype=int)
    return (numpy.sin(0.7 * numpy.arange(count) + salt) * 0.5).reshape(shape)


def one_hot(places, width):
    return numpy.eye(width)[places]


# --- networks: forward gives the output and what backward needs of the way there -------------------


def linear(parameters, x):
    weight, bias = parameters
    return x @ weight.T + bias


def linear_back(parameters, x, grad):
    """Gradients of weight and bias, and of the input."""
    return [grad.T @ x, grad.sum(axis=0)], grad @ parameters[0]


def norm(parameters, x):
    gain, shift = parameters
    centred = x - x.mean(axis=1, keepdims=True)
    deviation = numpy.sqrt((centred**2).mean(axis=1, keepdims=True) + NORM_EPSILON)
    normal = centred / deviation
    return normal * gain + shift, (normal, deviation)


def norm_back(parameters, kept, grad):
    normal, deviation = kept
    inner = grad * parameters[0]
    along = (inner * normal).mean(axis=1, keepdims=True)
    through = (inner - inner.mean(axis=1, keepdims=True) - normal * along) / deviation
    return [(grad * normal).sum(axis=0), grad.sum(axis=0)], through


def network(parameters, x):
    """Two hidden layers (linear, norm, ReLU) and a linear one: actor without its tanh, and critic."""
    tape = []
    for start in (0, 4):
        before = linear(parameters[start : start + 2], x)
        normal, kept = norm(parameters[start + 2 : start + 4], before)
        tape.append((x, kept, normal))
        x = numpy.maximum(normal, 0)
    return linear(parameters[8:], x), (tape, x)


def network_back(parameters, kept, grad):
    tape, last = kept
    gradients, grad = linear_back(parameters[8:], last, grad)
    for start, (x, norm_kept, normal) in zip((4, 0), reversed(tape)):
        of_norm, grad = norm_back(parameters[start + 2 : start + 4], norm_kept, grad * (normal > 0))
        of_linear, grad = linear_back(parameters[start : start + 2], x, grad)
        gradients = of_linear + of_norm + gradients
    return gradients, grad


def perceptron(parameters, x):
    """One hidden layer with ReLU: decoder, and encoder without its tanh."""
    hidden = numpy.maximum(linear(parameters[:2], x), 0)
    return linear(parameters[2:], hidden), (x, hidden)


def perceptron_back(parameters, kept, grad):
    x, hidden = kept
    outer, grad = linear_back(parameters[2:], hidden, grad)
    inner, grad = linear_back(parameters[:2], x, grad * (hidden > 0))
    return inner + outer, grad


def encode(parameters, x):
    return numpy.tanh(perceptron(parameters[:4], x)[0])


def decode(parameters, z):
    return perceptron(parameters[4:], z)[0]


def softmax(logits):
    shares = numpy.exp(logits - logits.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


# --- inputs ----------------------------------------------------------------------------------------


def autoencoder_parameters():
    shapes = [(4, WIDTH), (4,), (LATENT, 4), (LATENT,), (4, LATENT), (4,), (WIDTH, 4), (WIDTH,)]
    return [fill(shape, salt) for salt, shape in enumerate(shapes, 1)]


def network_parameters(first_salt, inputs, outputs):
    hidden = (HIDDEN,)
    shapes = [(HIDDEN, inputs), hidden, hidden, hidden, (HIDDEN, HIDDEN), hidden, hidden, hidden]
    shapes += [(outputs, HIDDEN), (outputs,)]
    parameters = [fill(shape, salt) for salt, shape in enumerate(shapes, first_salt)]
    for gain in (2, 6):
        parameters[gain] = 1 + 0.1 * parameters[gain]
    return parameters


def table():
    row = numpy.arange(ROWS)
    return numpy.hstack([fill((ROWS, NUMERICS), 50) * 2, one_hot(row % 3, 3), one_hot(row % 2, 2)])


def conditions(x):
    low, high = -abs(fill((ROWS, NUMERICS), 51)), abs(fill((ROWS, NUMERICS), 52))
    pairs = numpy.stack([low, high], axis=2).reshape(ROWS, 2 * NUMERICS)
    masks = []
    for block in BLOCKS:
        places = numpy.add.outer(numpy.arange(ROWS), numpy.arange(block.stop - block.start))
        masks.append(((places % 2 == 0) | (x[:, block] == 1)).astype(float))
    return numpy.hstack([pairs, *masks])


def inputs(autoencoder):
    row, x = numpy.arange(ROWS), table()
    z, c = encode(autoencoder, x), conditions(x)
    return {
        "x": x,
        "c": c,
        "s": numpy.hstack([z, one_hot(row % 2, CLASSES), one_hot(row // 2 % 2, CLASSES), c]),
        "z_tilde": numpy.clip(fill((ROWS, LATENT), 53) * 2, -1, 1),
        "reward": (row % 2 == 0).astype(float),
    }


# --- the update ------------------------------------------------------------------------------------


def adam(parameters, gradients):
    """The first step, from moments of zero."""
    stepped = []
    for parameter, gradient in zip(parameters, gradients, strict=True):
        first = (1 - BETA_1) * gradient / (1 - BETA_1)
        second = (1 - BETA_2) * gradient**2 / (1 - BETA_2)
        stepped.append(parameter - RATE * first / (numpy.sqrt(second) + ADAM_EPSILON))
    return stepped


def critic_loss(critic, given):
    """Loss, gradients, and the values before the step."""
    q, kept = network(critic, numpy.hstack([given["s"], given["z_tilde"]]))
    error = q - given["reward"][:, None]
    gradients, _ = network_back(critic, kept, 2 * error / ROWS)
    return (error**2).mean(), gradients, q[:, 0]


def constrain(decoded, given):
    """Post-processing: numerics into the condition's and the table's range, the best allowed category."""
    x, c = given["x"], given["c"]
    pairs, width = c[:, : 2 * NUMERICS].reshape(ROWS, NUMERICS, 2), HIGH - LOW
    own = x[:, :NUMERICS]
    numerics = numpy.clip(decoded[:, :NUMERICS], own + pairs[..., 0] * width, own + pairs[..., 1] * width)
    parts = [numpy.clip(numerics, LOW, HIGH)]
    for block in BLOCKS:
        # The masks stand behind as many pairs as the blocks stand behind numerics.
        mask = c[:, block.start + NUMERICS : block.stop + NUMERICS]
        logits = numpy.where(mask == 1, decoded[:, block], -numpy.inf)
        parts.append(one_hot(logits.argmax(axis=1), mask.shape[1]))
    return numpy.hstack(parts)


def changed(decoded, x):
    """Row by block: whether the best category is another than the row's own."""
    return numpy.stack(
        [decoded[:, block].argmax(axis=1) != x[:, block].argmax(axis=1) for block in BLOCKS], axis=1
    )


def sparsity(decoded, x, differs):
    """The smooth loss whose gradient counts: numerics, categories, and the gradient of their sum."""
    grad = numpy.zeros_like(decoded)
    gap = decoded[:, :NUMERICS] - x[:, :NUMERICS]
    grad[:, :NUMERICS] = numpy.sign(gap) / gap.size
    category = 0.0
    for place, block in enumerate(BLOCKS):
        shares, own = softmax(decoded[:, block]), x[:, block]
        share = (shares * own).sum(axis=1, keepdims=True)
        weight = differs[:, [place]] / differs.size
        category += (weight * (1 - share)).sum()
        grad[:, block] = -weight * share * (own - shares)
    return abs(gap).mean(), category, grad


class ActorStep:
    """The actor's loss, in which the updated critic, the autoencoder, and what the first pass found (which
    categories changed, where the encoder puts the constrained rows) are constants."""

    def __init__(self, actor, critic, autoencoder, given):
        self.critic, self.autoencoder, self.given = critic, autoencoder, given
        self.z = numpy.tanh(network(actor, given["s"])[0])
        self.decoded = decode(autoencoder, self.z)
        self.constrained = constrain(self.decoded, given)
        self.encoded = encode(autoencoder, self.constrained)
        self.differs = changed(self.decoded, given["x"])

    def loss(self, actor):
        """The parts of the smooth loss, and the gradients of their weighted sum."""
        raw, kept = network(actor, self.given["s"])
        z = numpy.tanh(raw)
        decoded, decoder_kept = perceptron(self.autoencoder[4:], z)
        q, critic_kept = network(self.critic, numpy.hstack([self.given["s"], z]))
        numeric, category, grad = sparsity(decoded, self.given["x"], self.differs)
        _, of_sparsity = perceptron_back(self.autoencoder[4:], decoder_kept, SPARSITY_WEIGHT * grad)
        _, of_value = network_back(self.critic, critic_kept, numpy.full_like(q, -1 / ROWS))
        gap = z - self.encoded
        of_z = of_value[:, STATE:] + of_sparsity + CONSISTENCY_WEIGHT * 2 * gap / gap.size
        gradients, _ = network_back(actor, kept, of_z * (1 - z**2))
        return (-q.mean(), numeric, category, (gap**2).mean()), gradients

    def smooth(self, actor):
        return total(*self.loss(actor)[0])


def total(value, numeric, category, consistency):
    return value + SPARSITY_WEIGHT * (numeric + category) + CONSISTENCY_WEIGHT * consistency


def reconstruction(autoencoder, x):
    """Squared error of numerics, cross-entropy of blocks, and the gradients of their sum."""
    raw, encoder_kept = perceptron(autoencoder[:4], x)
    z = numpy.tanh(raw)
    decoded, decoder_kept = perceptron(autoencoder[4:], z)
    gap = decoded[:, :NUMERICS] - x[:, :NUMERICS]
    grad = numpy.zeros_like(decoded)
    grad[:, :NUMERICS] = 2 * gap / gap.size
    entropy = 0.0
    for block in BLOCKS:
        shares, own = softmax(decoded[:, block]), x[:, block]
        entropy -= numpy.log((shares * own).sum(axis=1)).mean() / len(BLOCKS)
        grad[:, block] = (shares - own) / ROWS / len(BLOCKS)
    of_decoder, of_z = perceptron_back(autoencoder[4:], decoder_kept, grad)
    of_encoder, _ = perceptron_back(autoencoder[:4], encoder_kept, of_z * (1 - z**2))
    return (gap**2).mean(), entropy, of_encoder + of_decoder


# --- checking and printing -------------------------------------------------------------------------


def check(loss, parameters, gradients):
    """Gradients against central differences of the loss."""
    for place, gradient in enumerate(gradients):
        for index in numpy.ndindex(gradient.shape):
            sides = []
            for step in (DIFFERENCE_STEP, -DIFFERENCE_STEP):
                moved = [parameter.copy() for parameter in parameters]
                moved[place][index] += step
                sides.append(loss(moved))
            error = abs((sides[0] - sides[1]) / (2 * DIFFERENCE_STEP) - gradient[index])
            assert error < LARGEST_ERROR, f"parameter {place}, {index}: off by {error}"


def critic_part(critic, given):
    loss, gradients, q = critic_loss(critic, given)
    check(lambda moved: critic_loss(moved, given)[0], critic, gradients)
    after = adam(critic, gradients)
    return {"q_before": q, "loss": loss, "gradients": gradients, "parameters_after": after}


def actor_part(actor, step):
    (value, numeric, _, consistency), gradients = step.loss(actor)
    check(step.smooth, actor, gradients)
    parts = {"value": value, "numeric": numeric, "category": step.differs.mean(), "consistency": consistency}
    return {
        "z_cf": step.z,
        "decoded": step.decoded,
        "x_cf": step.constrained,
        "encoded_cf": step.encoded,
        "loss": {**parts, "total": total(*parts.values())},
        "gradients": gradients,
        "parameters_after": adam(actor, gradients),
    }


def autoencoder_part(autoencoder, x):
    squared, entropy, gradients = reconstruction(autoencoder, x)
    check(lambda moved: sum(reconstruction(moved, x)[:2]), autoencoder, gradients)
    parts = {"numeric": squared, "category": entropy, "total": squared + entropy}
    return {"decoded": decode(autoencoder, encode(autoencoder, x)), "loss": parts, "gradients": gradients}


def plain(value):
    """For JSON: numbers rounded, and lists of parameters flat."""
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [plain(entry.reshape(-1)) for entry in value]
    if numpy.ndim(value) > 0:
        return [plain(entry) for entry in value]
    return float(f"{value:.{DIGITS}g}")


def main():
    autoencoder = autoencoder_parameters()
    actor = network_parameters(11, STATE, LATENT)
    critic = network_parameters(31, STATE + LATENT, 1)
    given = inputs(autoencoder)
    critic_told = critic_part(critic, given)
    step = ActorStep(actor, critic_told["parameters_after"], autoencoder, given)
    parts = {
        "inputs": given,
        "critic": critic_told,
        "actor": actor_part(actor, step),
        "autoencoder": autoencoder_part(autoencoder, given["x"]),
    }
    # A line for each entry, so that a difference shows where it is.
    sections = []
    for name, entries in plain(parts).items():
        lines = [f"    {json.dumps(key)}: {json.dumps(entry)}" for key, entry in entries.items()]
        sections.append(f"  {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n  }")
    print("{\n" + ",\n".join(sections) + "\n}")


if __name__ == "__main__":
    main()
