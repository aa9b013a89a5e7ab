"""Maximum mean discrepancy, computed a second time: in NumPy, in 64 bits, over the whole matrix of pairs.

    mmd_oracle.py > tests/oracle/mmd.json

makes the committed file again; a test holds the program's own estimate against it. All is seeded. Rows and
weights are multiples of small powers of two, so that 32 bits and short decimals hold them exactly.

Bandwidth and estimator are those of alibi-detect: σ from the reference against itself without its diagonal,
lower median; the unbiased estimator. Weights are, per layer, the matrix [out, in] and the bias.
"""

import json

import numpy

SEED = 11
WIDTH, ENCODERS = 7, 3
ROWS, REFERENCE_ROWS = 61, 83
LAYERS = [(WIDTH, 32), (32, 16), (16, 5)]
DIGITS = 12


def exact(numbers, unit):
    return numpy.round(numbers / unit) * unit


def draw_weights(random):
    bounds = [(inputs * outputs + outputs, inputs**-0.5) for inputs, outputs in LAYERS]
    return exact(numpy.concatenate([random.uniform(-b, b, n) for n, b in bounds]), 2**-12)


def embed(weights, rows):
    for layer, (inputs, outputs) in enumerate(LAYERS):
        matrix, weights = numpy.split(weights, [inputs * outputs])
        bias, weights = numpy.split(weights, [outputs])
        rows = rows @ matrix.reshape(outputs, inputs).T + bias
        rows = numpy.maximum(rows, 0) if layer < len(LAYERS) - 1 else rows
    return rows


def distances(left, right):
    return ((left[:, None, :] - right[None, :, :]) ** 2).sum(axis=2)


def bandwidth(reference):
    count = len(reference)
    ordered = numpy.sort(distances(reference, reference), axis=None)
    return numpy.sqrt(ordered[count + (count**2 - count) // 2 - 1] / 2)


def mmd2(sample, reference, sigma):
    def kernel(left, right):
        return numpy.exp(-distances(left, right) / (2 * sigma**2))

    def within(points):
        count = len(points)
        return (kernel(points, points).sum() - count) / (count * (count - 1))

    return within(sample) + within(reference) - 2 * kernel(sample, reference).mean()


def view(sample, reference):
    sigma = bandwidth(reference)
    return {"bandwidth": round(sigma, DIGITS), "mmd2": round(mmd2(sample, reference, sigma), DIGITS)}


def main():
    random = numpy.random.default_rng(SEED)
    reference = exact(random.normal(0, 1, (REFERENCE_ROWS, WIDTH)), 2**-8)
    sample = exact(random.normal(0.4, 1.2, (ROWS, WIDTH)), 2**-8)
    encoders = []
    for _ in range(ENCODERS):
        weights = draw_weights(random)
        points = embed(weights, sample)
        found = view(points, embed(weights, reference))
        encoders.append({"weights": weights.tolist(), "embedded": points.round(8).ravel().tolist(), **found})
    told = {
        "width": WIDTH,
        "sample": sample.ravel().tolist(),
        "reference": reference.ravel().tolist(),
        "encoders": encoders,
        "raw": view(sample, reference),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
