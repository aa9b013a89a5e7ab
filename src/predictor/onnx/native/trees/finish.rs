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

impl Classifier {
    /// What the number that tells two classes apart must be above for the second.
    fn border(self) -> f64 {
        if self.one_sided && self.positive { 0.5 } else { 0.0 }
    }
}

/// What a model is to say.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in super::super::super) enum Aim {
    /// The label at this position.
    Label(u32),
    /// A value between these, both included.
    Between(f64, f64),
}

/// One output's sum, less another's, plus a constant, must not be negative.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in super::super) struct Need {
    pub(in super::super) up: Option<usize>,
    pub(in super::super) down: Option<usize>,
    pub(in super::super) plus: f64,
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

    /// What sums must be for a label or a value, by outputs that have weights: one output's sum less another's, plus a
    /// constant, must not be negative. None where that is not told by sums alone.
    pub(in super::super) fn class_demands(
        &self,
        aim: Aim,
        (weighed, trees): (&[bool], usize),
    ) -> Option<Vec<Need>> {
        match (aim, self.classifier) {
            (Aim::Label(label), Some(classifier)) if self.outputs == 2 => {
                Some(vec![self.need_of_two(label, classifier, weighed)])
            }
            (Aim::Label(label), Some(_)) => self.needs_of_class(label as usize, weighed),
            (Aim::Between(low, high), None) if self.outputs == 1 => {
                if self.transform == Transform::Probit {
                    return None;
                }
                let average = self.aggregate == Aggregate::Average;
                let scale = if average { trees as f64 } else { 1.0 };
                let base = self.base.first().map_or(0.0, |base| base.double());
                let above = Need { up: Some(0), down: None, plus: scale * (base - low) };
                let below = Need { up: None, down: Some(0), plus: scale * (high - base) };
                Some([above, below].into_iter().filter(|need| need.plus.is_finite()).collect())
            }
            _ => None,
        }
    }

    /// What the first or second of two classes needs: its label is told by one number, which grows with one sum.
    fn need_of_two(&self, label: u32, classifier: Classifier, weighed: &[bool]) -> Need {
        let decisive = |sums: [f64; 2]| {
            let mut sums = sums.map(T::rounded);
            self.add_bases(&mut sums, weighed);
            self.decisive(&sums, weighed).double()
        };
        let nought = decisive([0.0, 0.0]);
        let grows = decisive([1.0, 0.0]) - nought > 0.5;
        let output = Some(usize::from(!grows));
        let above = nought - classifier.border();
        match label {
            0 => Need { up: None, down: output, plus: -above },
            _ => Need { up: output, down: None, plus: above },
        }
    }

    /// What one of several classes needs beside each of the others.
    fn needs_of_class(&self, label: usize, weighed: &[bool]) -> Option<Vec<Need>> {
        let base = |class: usize| self.base.get(class).map(|base| base.double());
        let counts = |class: usize| weighed[class] || base(class).is_some();
        let weight = |class: usize| weighed[class].then_some(class);
        let need = |other: usize| Need {
            up: weight(label),
            down: weight(other),
            plus: base(label).unwrap_or(0.0) - base(other).unwrap_or(0.0),
        };
        let others = (0..self.outputs).filter(|other| *other != label && counts(*other));
        counts(label).then(|| others.map(need).collect())
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
        self.add_bases(sums, seen);
        let alone = self.base.len() < 2 && !seen[1];
        let positive = self.decisive(sums, seen).double() > classifier.border();
        if alone {
            self.second_class(classifier, sums);
        } else {
            hide(sums, seen);
            self.transform.apply(sums);
        }
        positive.into()
    }

    fn add_bases(&self, sums: &mut [T], seen: &[bool]) {
        match self.base[..] {
            [_, second] if seen[1] => {
                sums[1] = second + sums[0];
                sums[0] = -sums[1];
            }
            [first, second] => {
                sums[1] += second;
                sums[0] += first;
            }
            [first] => sums[0] += first,
            _ => {}
        }
    }

    /// The number that tells two classes apart.
    fn decisive(&self, sums: &[T], seen: &[bool]) -> T {
        match seen {
            [_, true] => sums[1],
            [true, _] => sums[0],
            _ => T::default(),
        }
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
