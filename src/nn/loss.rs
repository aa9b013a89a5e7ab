//! The losses of the paper, each a mean over the batch and over features (not a sum), as λ = 0.5 refers
//! to means.

use tch::{Kind, Reduction, Tensor};

use super::tensor_layout::TensorLayout;

/// Squared error averaged over numerics + cross-entropy averaged over categoricals.
pub fn reconstruction_loss(
    decoded: &Tensor,
    rows: &Tensor,
    tensor_layout: &TensorLayout,
) -> Tensor {
    let mut loss = Tensor::zeros([], (Kind::Float, rows.device()));
    if tensor_layout.numerics > 0 {
        let (found, original) =
            (tensor_layout.numerics_of(decoded), tensor_layout.numerics_of(rows));
        loss += found.mse_loss(&original, Reduction::Mean);
    }
    if tensor_layout.blocks > 0 {
        let logarithms = tensor_layout.logits(decoded).log_softmax(-1, Kind::Float);
        let original = tensor_layout.one_hots(rows);
        loss -= (logarithms * original).sum_dim_intlist(-1, false, Kind::Float).mean(Kind::Float);
    }
    loss
}

/// L_sparsity, in its two parts.
#[derive(Debug)]
pub struct SparsityLoss {
    /// Mean |x_cf − x| over standardised numerics.
    pub numeric: Tensor,
    /// Share of categoricals that change. Its gradient is that of a straight-through estimate: where the
    /// most probable value is not the row's own, towards the own value's probability; else none.
    pub categorical: Tensor,
}

/// L_1 over numerics and relaxed L_0 over categoricals, on the decoder's output before post-processing.
pub fn sparsity_loss(
    decoded: &Tensor,
    rows: &Tensor,
    tensor_layout: &TensorLayout,
) -> SparsityLoss {
    let none = || Tensor::zeros([], (Kind::Float, rows.device()));
    let numeric = if tensor_layout.numerics > 0 {
        tensor_layout
            .numerics_of(decoded)
            .l1_loss(&tensor_layout.numerics_of(rows), Reduction::Mean)
    } else {
        none()
    };
    let categorical =
        if tensor_layout.blocks > 0 { changed_share(decoded, rows, tensor_layout) } else { none() };
    SparsityLoss { numeric, categorical }
}

/// The same on post-processed rows, whose gradient passes the post-processing: what a constraint undoes
/// costs nothing, and a category that is kept is kept surely.
pub fn output_sparsity(seen: &Tensor, rows: &Tensor, tensor_layout: &TensorLayout) -> SparsityLoss {
    let none = || Tensor::zeros([], (Kind::Float, rows.device()));
    let numeric = if tensor_layout.numerics > 0 {
        tensor_layout.numerics_of(seen).l1_loss(&tensor_layout.numerics_of(rows), Reduction::Mean)
    } else {
        none()
    };
    let categorical = if tensor_layout.blocks > 0 {
        let agreement = tensor_layout.blocks_of(seen) * tensor_layout.blocks_of(rows);
        let agreement = agreement.sum_dim_intlist(1, false, Kind::Float).mean(Kind::Float);
        -agreement / tensor_layout.blocks as f64 + 1.0
    } else {
        none()
    };
    SparsityLoss { numeric, categorical }
}

fn changed_share(decoded: &Tensor, rows: &Tensor, tensor_layout: &TensorLayout) -> Tensor {
    let (logits, original) = (tensor_layout.logits(decoded), tensor_layout.one_hots(rows));
    let changed = logits.detach().argmax(-1, false).ne_tensor(&original.argmax(-1, false));
    let original_share =
        (logits.softmax(-1, Kind::Float) * original).sum_dim_intlist(-1, false, Kind::Float);
    let straight_through = original_share.detach() - original_share + 1.0;
    (changed.to_kind(Kind::Float) * straight_through).mean(Kind::Float)
}

/// L_consist: z_cf against the latent of its own post-processed decoding, which counts as a constant.
pub fn consistency_loss(latent: &Tensor, encoded_again: &Tensor) -> Tensor {
    latent.mse_loss(&encoded_again.detach(), Reduction::Mean)
}

/// Cross-entropy of a critic that predicts outcomes, against what came of a row, or its target;
/// A target has no slot for the last outcome, which is no prediction at all.
pub fn outcome_loss(logits: &Tensor, outcomes: &Tensor) -> Tensor {
    let logarithms = logits.log_softmax(-1, Kind::Float).narrow(1, 0, outcomes.size()[1]);
    -(logarithms * outcomes).sum_dim_intlist(-1, false, Kind::Float).mean(Kind::Float)
}

/// The critic's regression on the reward.
pub fn critic_loss(values: &Tensor, rewards: &Tensor) -> Tensor {
    values.mse_loss(rewards, Reduction::Mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// −log of the softmax, by hand: of (1, 2, 0) the shares are e, e², 1 over their sum.
    #[test]
    fn outcomes_cost_the_logarithm_of_their_probability() {
        let logits = Tensor::from_slice(&[1f32, 2.0, 0.0, 1.0, 2.0, 0.0]).view([2, 3]);
        let logits = logits.set_requires_grad(true);
        let sum = 1f64.exp() + 2f64.exp() + 1.0;
        let cost = |logit: f64| sum.ln() - logit;
        // A target has no slot for the last outcome; a soft outcome has its parts.
        let target = Tensor::from_slice(&[1f32, 0.0, 0.0, 1.0]).view([2, 2]);
        let found = outcome_loss(&logits, &target).double_value(&[]);
        assert!((found - (cost(1.0) + cost(2.0)) / 2.0).abs() < 1e-6, "{found}");
        let outcomes = Tensor::from_slice(&[0.5f32, 0.0, 0.5, 0.0, 0.0, 0.0]).view([2, 3]);
        let loss = outcome_loss(&logits, &outcomes);
        let found = loss.double_value(&[]);
        assert!((found - (0.5 * cost(1.0) + 0.5 * cost(0.0)) / 2.0).abs() < 1e-6, "{found}");
        // The gradient is share less outcome; a row about which nothing is told has none.
        let gradient = &Tensor::run_backward(&[loss], &[&logits], false, false)[0];
        let expected = [1f64.exp() / sum - 0.5, 2f64.exp() / sum, 1.0 / sum - 0.5, 0.0, 0.0, 0.0];
        for (slot, expected) in expected.iter().enumerate() {
            let found = gradient.double_value(&[slot as i64 / 3, slot as i64 % 3]);
            assert!((found - expected / 2.0).abs() < 1e-6, "{slot}: {found}");
        }
    }
}
