//! From the sums of a row to its scores and label, as ONNX Runtime's aggregators do it: with its types, its
//! formulas, and its rules for two classes of which only one has weights.

use super::super::transform;
pub(in super::super) use super::super::transform::Transform;
use super::real::Real;

/// How the weights of the reached leaves become one number for each output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Aggregate {
    Sum,
    Average,
    Min,
    Max,
}

impl Aggregate {
    pub(super) fn named(name: &str) -> Option<Aggregate> {
        Some(match name {
            "SUM" => Aggregate::Sum,
            "AVERAGE" => Aggregate::Average,
            "MIN" => Aggregate::Min,
            "MAX" => Aggregate::Max,
            _ => return None,
        })
    }

    pub(super) fn numbered(number: i64) -> Option<Aggregate> {
        Some(match number {
            0 => Aggregate::Average,
            1 => Aggregate::Sum,
            2 => Aggregate::Min,
            3 => Aggregate::Max,
            _ => return None,
        })
    }

    /// Whether a weight takes the place of the number so far.
    pub(super) fn prefers<T: Real>(self, weight: T, so_far: T) -> bool {
        match self {
            Aggregate::Min => weight < so_far,
            _ => weight > so_far,
        }
    }

    /// Whether numbers are summed.
    pub(in super::super) fn sums(self) -> bool {
        matches!(self, Aggregate::Sum | Aggregate::Average)
    }
}

/// What a classifier knows of its weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Classifier {
    /// Whether only one of two classes has weights.
    pub(super) one_sided: bool,
    /// Whether no weight is negative.
    pub(super) positive: bool,
}

/// What follows the sums.
#[derive(Debug, Clone)]
pub(in super::super) struct Finish<T> {
    /// Targets or classes.
    pub(in super::super) outputs: usize,
    pub(super) base: Vec<T>,
    pub(in super::super) aggregate: Aggregate,
    pub(super) transform: Transform,
    pub(in super::super) classifier: Option<Classifier>,
}

impl<T: Real> Finish<T> {
    /// Turns a row's sums, with whether each of them got a weight, into its scores; gives the position of its
    /// label. `trees` is how many there are.
    pub(in super::super) fn row(&self, sums: &mut [T], seen: &mut [bool], trees: usize) -> u32 {
        match self.classifier {
            None => {
                self.regression(sums, seen, trees);
                0
            }
            Some(classifier) if self.outputs == 2 => self.two_classes(classifier, sums, seen),
            Some(_) => self.classes(sums, seen),
        }
    }

    fn regression(&self, sums: &mut [T], seen: &[bool], trees: usize) {
        let based = self.base.len() == self.outputs;
        let average = self.aggregate == Aggregate::Average;
        for (at, sum) in sums.iter_mut().enumerate() {
            if average {
                *sum = *sum / T::rounded(trees as f64);
            }
            if !seen[at] {
                *sum = T::default();
            }
            if based {
                *sum += self.base[at];
            }
        }
        match (self.outputs, self.transform) {
            // A single target has no other transformation.
            (1, Transform::Probit) => sums[0] = transform::probit(sums[0]),
            (1, _) => {}
            _ => self.transform.apply(sums),
        }
    }

    fn classes(&self, sums: &mut [T], seen: &mut [bool]) -> u32 {
        for ((sum, seen), base) in sums.iter_mut().zip(&mut *seen).zip(&self.base) {
            *sum = if *seen { *sum + *base } else { *base };
            *seen = true;
        }
        let mut best: Option<usize> = None;
        for at in (0..sums.len()).filter(|at| seen[*at]) {
            if best.is_none_or(|best| sums[at] > sums[best]) {
                best = Some(at);
            }
        }
        hide(sums, seen);
        self.transform.apply(sums);
        best.unwrap_or_default() as u32
    }

    fn two_classes(&self, classifier: Classifier, sums: &mut [T], seen: &mut [bool]) -> u32 {
        let mut alone = false;
        match self.base.len() {
            2 if seen[1] => {
                sums[1] = self.base[1] + sums[0];
                sums[0] = -sums[1];
            }
            2 => {
                sums[1] += self.base[1];
                sums[0] += self.base[0];
            }
            1 => {
                sums[0] += self.base[0];
                alone = !seen[1];
            }
            0 => alone = !seen[1],
            _ => {}
        }
        let decisive = match seen {
            [_, true] => sums[1],
            [true, _] => sums[0],
            _ => T::default(),
        };
        let positive = if classifier.one_sided && classifier.positive {
            decisive.double() > 0.5
        } else {
            decisive > T::default()
        };
        if alone {
            self.second_class(classifier, sums);
        } else {
            hide(sums, seen);
            self.transform.apply(sums);
        }
        positive.into()
    }

    /// Scores of two classes from the one number that there is.
    fn second_class(&self, classifier: Classifier, sums: &mut [T]) {
        let score = sums[0];
        let (one, two) = match self.transform {
            Transform::Logistic => (transform::logistic(-score), transform::logistic(score)),
            // The second is never written by ONNX Runtime; whoever looks at it is told apart at the start.
            Transform::Probit => (transform::probit(score), T::default()),
            _ if classifier.one_sided && classifier.positive => (T::ONE - score, score),
            _ => (-score, score),
        };
        (sums[0], sums[1]) = (one, two);
    }
}

/// A sum without a weight counts as nought.
fn hide<T: Real>(sums: &mut [T], seen: &[bool]) {
    for (sum, _) in sums.iter_mut().zip(seen).filter(|(_, seen)| !**seen) {
        *sum = T::default();
    }
}
