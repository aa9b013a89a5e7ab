//! The losses of [`super::super::loss`] in plain memory. Each gives its value and adds its gradient, times a weight.

use super::features::HostFeatures;
use super::functions::greatest;
use crate::nn::generator::ActorShape;

/// L_sparsity, in its two parts.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct HostSparsity {
    /// Of numerics.
    pub numeric: f32,
    /// Of categoricals.
    pub categorical: f32,
}

/// Cross-entropy of outcomes: of logits against what came of rows, of which there may be fewer block_slots. Writes the
/// gradient.
pub fn outcome_loss(logits: &[f32], targets: &[f32], gradient: &mut [f32], outcomes: usize) -> f32 {
    let rows = logits.len() / outcomes;
    let (width, share) = (targets.len() / rows.max(1), 1.0 / rows as f32);
    let mut loss = 0.0;
    let all = logits.chunks_exact(outcomes).zip(gradient.chunks_exact_mut(outcomes));
    for ((logits, gradient), targets) in all.zip(targets.chunks_exact(width)) {
        let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let powers = gradient.iter_mut().zip(logits);
        powers.for_each(|(power, logit)| *power = (logit - most).exp());
        let sum: f32 = gradient.iter().sum();
        let (total, logarithm) = (targets.iter().sum::<f32>(), most + sum.ln());
        gradient.iter_mut().for_each(|power| *power *= total * share / sum);
        for ((targets, logit), gradient) in targets.iter().zip(logits).zip(gradient) {
            loss += targets * (logarithm - logit);
            *gradient -= targets * share;
        }
    }
    loss * share
}

/// The critic's regression on the reward. Writes the gradient.
pub fn critic_loss(values: &[f32], rewards: &[f32], gradient: &mut [f32]) -> f32 {
    let share = 1.0 / values.len() as f32;
    let mut loss = 0.0;
    for ((value, reward), gradient) in values.iter().zip(rewards).zip(gradient) {
        let error = value - reward;
        loss += error * error;
        *gradient = 2.0 * error * share;
    }
    loss * share
}

/// L_consist: z_cf of actions against the latent of their own post-processed rows, which counts as a constant.
pub fn consistency_loss(
    actions: &[f32],
    again: &[f32],
    shape: ActorShape,
    (weight, gradient): (f32, &mut [f32]),
) -> f32 {
    let (latent, action) = (shape.latent as usize, shape.action() as usize);
    let share = 1.0 / again.len() as f32;
    let mut loss = 0.0;
    let rows = actions.chunks_exact(action).zip(gradient.chunks_exact_mut(action));
    for ((action, gradient), again) in rows.zip(again.chunks_exact(latent)) {
        for ((z, gradient), again) in action.iter().zip(gradient).zip(again) {
            let gap = z - again;
            loss += gap * gap;
            *gradient += weight * 2.0 * gap * share;
        }
    }
    loss * share
}

impl HostFeatures {
    /// Of post-processed rows: mean |x_cf − x| over numerics, and the share of categoricals that change.
    pub fn output_sparsity(
        &self,
        settled: &[f32],
        x: &[f32],
        (weights, gradient): ([f32; 2], &mut [f32]),
    ) -> HostSparsity {
        let [numeric_share, share] = self.shares(settled.len() / self.width);
        let [of_numeric, of_category] = [weights[0] * numeric_share, weights[1] * share];
        let (mut far, mut agreement) = (0.0, 0.0);
        let first = self.width - self.block_slots();
        let rows = settled.chunks_exact(self.width).zip(x.chunks_exact(self.width));
        for ((settled, x), gradient) in rows.zip(gradient.chunks_exact_mut(self.width)) {
            far += distance(&settled[..self.numerics], x, (of_numeric, &mut *gradient));
            let slots = settled[first..].iter().zip(&x[first..]).zip(&mut gradient[first..]);
            for ((settled, x), gradient) in slots {
                agreement += settled * x;
                *gradient -= of_category * x;
            }
        }
        let categorical = if self.categoricals() > 0 { 1.0 - agreement * share } else { 0.0 };
        HostSparsity { numeric: far * numeric_share, categorical }
    }

    /// The same of decoded rows, before post-processing. Where the most probable value is not the row's own, the
    /// gradient goes towards the own value's probability.
    pub fn decoded_sparsity(
        &self,
        decoded: &[f32],
        x: &[f32],
        (weights, gradient): ([f32; 2], &mut [f32]),
    ) -> HostSparsity {
        let [numeric_share, share] = self.shares(decoded.len() / self.width);
        let [of_numeric, of_category] = [weights[0] * numeric_share, weights[1] * share];
        let (mut far, mut changed) = (0.0, 0.0);
        let first = self.width - self.block_slots();
        let mut shares: Vec<f32> =
            decoded.chunks_exact(self.width).flat_map(|row| &row[first..]).copied().collect();
        self.softmax(&mut shares);
        let rows = decoded.chunks_exact(self.width).zip(x.chunks_exact(self.width)).enumerate();
        for ((row, (decoded, x)), gradient) in rows.zip(gradient.chunks_exact_mut(self.width)) {
            far += distance(&decoded[..self.numerics], x, (of_numeric, &mut *gradient));
            let shares = &shares[row * self.block_slots()..];
            for block in self.blocks() {
                let original = greatest(&x[block.clone()]);
                if greatest(&decoded[block.clone()]) == original {
                    continue;
                }
                changed += 1.0;
                let shares = &shares[block.start - first..block.end - first];
                let known = shares[original] * x[block.start + original];
                for (slot, gradient) in gradient[block].iter_mut().enumerate() {
                    let is_original = if slot == original { 1.0 } else { 0.0 };
                    *gradient -= of_category * known * (is_original - shares[slot]);
                }
            }
        }
        HostSparsity { numeric: far * numeric_share, categorical: changed * share }
    }

    /// Squared error averaged over numerics + cross-entropy averaged over categoricals. Writes the gradient.
    pub fn reconstruction_loss(&self, decoded: &[f32], x: &[f32], gradient: &mut [f32]) -> f32 {
        let [numeric_share, share] = self.shares(decoded.len() / self.width);
        let first = self.width - self.block_slots();
        let (mut squares, mut entropy) = (0.0, 0.0);
        let mut shares: Vec<f32> =
            decoded.chunks_exact(self.width).flat_map(|row| &row[first..]).copied().collect();
        self.softmax(&mut shares);
        let rows = decoded.chunks_exact(self.width).zip(x.chunks_exact(self.width)).enumerate();
        for ((row, (decoded, x)), gradient) in rows.zip(gradient.chunks_exact_mut(self.width)) {
            let cells = decoded[..self.numerics].iter().zip(x).zip(gradient.iter_mut());
            for ((found, x), gradient) in cells {
                let error = found - x;
                squares += error * error;
                *gradient = 2.0 * error * numeric_share;
            }
            gradient[self.numerics..first].fill(0.0);
            let shares = &shares[row * self.block_slots()..];
            for block in self.blocks() {
                let shares = &shares[block.start - first..block.end - first];
                entropy += cross_entropy(shares, &x[block.clone()], (share, &mut gradient[block]));
            }
        }
        squares * numeric_share + entropy * share
    }

    /// What one numeric and one categorical of so many rows count in a mean.
    fn shares(&self, rows: usize) -> [f32; 2] {
        [self.numerics, self.categoricals()].map(|count| 1.0 / (rows * count).max(1) as f32)
    }
}

/// −log of a category's probability, where the row has it.
fn cross_entropy(shares: &[f32], original: &[f32], (weight, gradient): (f32, &mut [f32])) -> f32 {
    let has: f32 = original.iter().sum();
    let mut entropy = 0.0;
    for ((share, original), gradient) in shares.iter().zip(original).zip(gradient) {
        if *original != 0.0 {
            entropy -= original * share.max(f32::MIN_POSITIVE).ln();
        }
        *gradient = (share * has - original) * weight;
    }
    entropy
}

/// Sum of |found − x|, the row's first numbers.
fn distance(found: &[f32], x: &[f32], (weight, gradient): (f32, &mut [f32])) -> f32 {
    let mut far = 0.0;
    for ((found, x), gradient) in found.iter().zip(x).zip(gradient) {
        let gap = found - x;
        far += gap.abs();
        // Where nothing moves, there is no direction to move less in.
        if gap != 0.0 {
            *gradient += if gap > 0.0 { weight } else { -weight };
        }
    }
    far
}
