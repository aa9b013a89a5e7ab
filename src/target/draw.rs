//! Which rows and which targets a training step gets: rows in shuffled epochs without replacement,
//! targets uniform over all labels, but not the row's own where that is known; either balanced on request.

use rand::seq::SliceRandom;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{LEAST_PROBABILITY, TargetCodec, Targets, one_hots};
use crate::job::{Target, TargetsKind};
use crate::predictor::{NO_CLASS, Outcome, Scores};

/// Rows of the training table in a random order, over and over.
#[derive(Debug, Clone)]
pub struct RowOrder {
    /// Rows in groups that take turns: one group, or one per predicted class.
    groups: Vec<TargetRows>,
    turn: usize,
}

#[derive(Debug, Clone)]
struct TargetRows {
    rows: Vec<u32>,
    next: usize,
    random: ChaCha8Rng,
}

impl RowOrder {
    /// All rows alike; or, with labels, every class equally often.
    pub fn new(rows: usize, labels: Option<&[u32]>, random: &mut ChaCha8Rng) -> RowOrder {
        let classes =
            labels.and_then(|labels| labels.iter().filter(|label| **label != NO_CLASS).max());
        let mut groups = vec![Vec::new(); classes.map_or(1, |most| *most as usize + 1)];
        for row in 0..rows as u32 {
            match labels.map(|labels| labels[row as usize]) {
                Some(NO_CLASS) => {}
                label => groups[label.unwrap_or(0) as usize].push(row),
            }
        }
        let group = |rows: Vec<u32>| {
            let next = rows.len();
            TargetRows { rows, next, random: ChaCha8Rng::seed_from_u64(random.next_u64()) }
        };
        RowOrder {
            groups: groups.into_iter().filter(|rows| !rows.is_empty()).map(group).collect(),
            turn: 0,
        }
    }

    /// The next rows.
    pub fn next(&mut self, count: usize) -> Vec<u32> {
        (0..count).map(|_| self.one()).collect()
    }

    fn one(&mut self) -> u32 {
        self.turn = (self.turn + 1) % self.groups.len();
        let group = &mut self.groups[self.turn];
        if group.next == group.rows.len() {
            group.rows.shuffle(&mut group.random);
            group.next = 0;
        }
        group.next += 1;
        group.rows[group.next - 1]
    }
}

/// Draws y_T.
#[derive(Debug, Clone)]
pub struct TargetSampler {
    /// Cumulative weights of the classes that are asked for.
    classes: Vec<(u32, f64)>,
    kind: TargetsKind,
    /// All classes of the model.
    width: usize,
    /// The model's distributions on the training rows, to ask for such ones.
    distributions: Vec<f32>,
    /// The model's values on the training rows, ascending.
    values: Vec<f64>,
    /// Half the width of a target range.
    half: f64,
    /// The job's own range, asked for every other time.
    range: Option<(f64, f64)>,
    /// The job's own class.
    class: Option<u32>,
}

/// Of the spread of a model's values, the least half-width of a range that is asked for in training.
const NARROWEST: f64 = 0.01;
/// The highest of the least probabilities that are asked for in training.
const MOST_PROBABILITY: f32 = 0.95;
/// Times that a distribution is drawn again for a row that has its decision: where nearly all have the same,
/// another is hard to find.
const REDRAWN: usize = 32;

impl TargetSampler {
    /// A sampler for a model of which this is known. Classes that it never predicted are asked for only
    /// if the job names them: nobody knows whether they can be had.
    pub fn new(codec: &TargetCodec, scores: &Scores, target: Option<&Target>) -> TargetSampler {
        let mut sampler = TargetSampler {
            classes: Vec::new(),
            kind: TargetsKind::Label,
            width: codec.target_width(),
            distributions: Vec::new(),
            values: Vec::new(),
            half: 0.0,
            range: None,
            class: None,
        };
        match (codec, &scores.outcome) {
            (
                TargetCodec::Classes { classes, kind },
                Outcome::Classes { labels, probabilities },
            ) => {
                if let Some(Target::Class(class)) = target {
                    sampler.class = (0u32..)
                        .zip(classes)
                        .find(|(_, name)| *name == class)
                        .map(|(index, _)| index);
                }
                let drawn = |index: &u32| sampler.class == Some(*index) || labels.contains(index);
                let drawn = (0..classes.len() as u32).filter(drawn);
                sampler.classes = drawn.map(|index| (index, 1.0)).collect();
                sampler.kind = *kind;
                if *kind == TargetsKind::Distribution {
                    let all = probabilities.iter().flatten();
                    sampler.distributions = all.map(|share| *share as f32).collect();
                }
            }
            (TargetCodec::Range { std, .. }, Outcome::Values(values)) => {
                sampler.values = values.iter().copied().filter(|value| value.is_finite()).collect();
                sampler.values.sort_by(f64::total_cmp);
                let half = match target {
                    Some(Target::Range { low, high }) => (high - low) / 2.0,
                    Some(Target::Column { tolerance, .. }) => *tolerance,
                    _ => 0.0,
                };
                sampler.half = half.max(NARROWEST * std);
                if let Some(Target::Range { low, high }) = target {
                    sampler.range = Some((*low, *high));
                }
            }
            _ => {}
        }
        sampler
    }

    /// Classes that are asked for.
    pub fn classes(&self) -> impl Iterator<Item = u32> {
        self.classes.iter().map(|(class, _)| *class)
    }

    /// Asks for classes in proportion to these weights from now on.
    pub fn weigh(&mut self, weight: impl Fn(u32) -> f64) {
        for (class, share) in &mut self.classes {
            *share = weight(*class);
        }
    }

    /// y_T for training: any label, the row's own too.
    pub fn draw(&self, rows: usize, random: &mut impl Rng) -> Targets {
        self.draw_but(rows, |_| NO_CLASS, random)
    }

    /// y_T for training where each row has a decision already: any label but that.
    pub fn draw_unlike(&self, labels: &[u32], random: &mut impl Rng) -> Targets {
        self.draw_but(labels.len(), |row| labels[row], random)
    }

    /// The job's own class, if it names one.
    pub fn named_class(&self) -> Option<u32> {
        self.class
    }

    /// y_T for judging: the job's own target or any label, but never the one the row has. Of a distribution,
    /// all is asked for one class, as explanations do.
    pub fn draw_other(&self, labels: &[u32], random: &mut impl Rng) -> Targets {
        let mut targets = self.draw_classes(labels.len(), |row| labels[row], random);
        if let (Some(named), Targets::Classes { classes, .. }) = (self.class, &mut targets) {
            for (class, label) in classes.iter_mut().zip(labels) {
                *class = if *label == named { *class } else { named };
            }
        }
        match targets {
            Targets::Classes { classes, .. } if self.kind == TargetsKind::Distribution => {
                let values = one_hots(&classes, self.width);
                Targets::Distributions { classes, values }
            }
            targets => targets,
        }
    }

    fn draw_but(
        &self,
        rows: usize,
        decided: impl Fn(usize) -> u32,
        random: &mut impl Rng,
    ) -> Targets {
        if self.classes.is_empty() {
            return self.ranges(rows, random);
        }
        if !self.distributions.is_empty() {
            return self.draw_distributions(rows, decided, random);
        }
        self.draw_classes(rows, decided, random)
    }

    fn draw_classes(
        &self,
        rows: usize,
        decided: impl Fn(usize) -> u32,
        random: &mut impl Rng,
    ) -> Targets {
        let classes: Vec<u32> = (0..rows).map(|row| self.class(decided(row), random)).collect();
        let least = |_| match self.kind {
            TargetsKind::Probability => random.random_range(LEAST_PROBABILITY..MOST_PROBABILITY),
            _ => 0.0,
        };
        let probabilities = (0..rows).map(least).collect();
        Targets::Classes { classes, probabilities }
    }

    fn class(&self, decided: u32, random: &mut impl Rng) -> u32 {
        let others = || self.classes.iter().filter(|(class, _)| *class != decided);
        let total: f64 = others().map(|(_, weight)| weight).sum();
        let mut left = random.random_range(0.0..1.0) * total;
        for (class, weight) in others() {
            left -= weight;
            if left < 0.0 {
                return *class;
            }
        }
        others().next_back().map_or(decided, |(class, _)| *class)
    }

    /// Distributions as the model gives them, of another decision each if there is one to be found.
    fn draw_distributions(
        &self,
        rows: usize,
        decided: impl Fn(usize) -> u32,
        random: &mut impl Rng,
    ) -> Targets {
        let width = self.width;
        let examples = self.distributions.len() / width;
        let mut values = Vec::with_capacity(rows * width);
        for row in 0..rows {
            let mut one = || {
                let example = random.random_range(0..examples) * width;
                &self.distributions[example..example + width]
            };
            let mut drawn = one();
            for _ in 0..REDRAWN {
                if most_probable(drawn) != decided(row) {
                    break;
                }
                drawn = one();
            }
            values.extend_from_slice(drawn);
        }
        let classes = values.chunks_exact(width).map(most_probable).collect();
        Targets::Distributions { classes, values }
    }

    fn ranges(&self, rows: usize, random: &mut impl Rng) -> Targets {
        let mut low = Vec::with_capacity(rows);
        let mut high = Vec::with_capacity(rows);
        for _ in 0..rows {
            let of_job = self.range.filter(|_| random.random_bool(0.5));
            let (from, to) = of_job.unwrap_or_else(|| {
                let centre = self.values[random.random_range(0..self.values.len())];
                (centre - self.half, centre + self.half)
            });
            low.push(from);
            high.push(to);
        }
        Targets::Ranges { low, high }
    }

    /// The job's own range for every row, if it has one.
    pub fn job_range(&self, rows: usize) -> Option<Targets> {
        let (low, high) = self.range?;
        Some(Targets::Ranges { low: vec![low; rows], high: vec![high; rows] })
    }
}

fn most_probable(row: &[f32]) -> u32 {
    let mut best = 0;
    for (class, share) in row.iter().enumerate() {
        if *share > row[best] {
            best = class;
        }
    }
    best as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random() -> ChaCha8Rng {
        ChaCha8Rng::seed_from_u64(1)
    }

    fn sampler(kind: TargetsKind, target: Option<&Target>) -> TargetSampler {
        let classes = ["a", "b", "c"].map(String::from).to_vec();
        let scores = Scores {
            rows: 4,
            outcome: Outcome::Classes {
                labels: vec![0, 1, 0, 1],
                probabilities: Some([[0.7, 0.2, 0.1], [0.3, 0.6, 0.1]].repeat(2).concat()),
            },
            failures: Vec::new(),
        };
        TargetSampler::new(&TargetCodec::Classes { classes, kind }, &scores, target)
    }

    #[test]
    fn an_epoch_has_every_row_once() {
        let mut order = RowOrder::new(7, None, &mut random());
        for _ in 0..3 {
            let mut epoch = order.next(7);
            epoch.sort_unstable();
            assert_eq!(epoch, [0, 1, 2, 3, 4, 5, 6]);
        }
    }

    #[test]
    fn balanced_rows_have_every_class_equally_often() {
        let labels = [0, 0, 0, 0, 0, 0, 1, NO_CLASS];
        let mut order = RowOrder::new(8, Some(&labels), &mut random());
        let drawn = order.next(100);
        assert_eq!(drawn.iter().filter(|row| **row == 6).count(), 50);
        assert!(!drawn.contains(&7), "a row without a prediction teaches nothing");
    }

    #[test]
    fn targets_are_uniform_over_the_classes_that_occur() {
        let Targets::Classes { classes, .. } =
            sampler(TargetsKind::Label, None).draw(10_000, &mut random())
        else {
            panic!("classes")
        };
        let share = |class| classes.iter().filter(|drawn| **drawn == class).count();
        assert!((4_800..5_200).contains(&share(0)), "{}", share(0));
        assert_eq!(share(2), 0, "a class that is never predicted is asked for only by name");
        let labels = [0u32, 1].repeat(100);
        let unlike = sampler(TargetsKind::Label, None).draw_unlike(&labels, &mut random());
        let mut pairs = unlike.classes().expect("classes").iter().zip(&labels);
        assert!(
            pairs.all(|(target, decided)| target != decided),
            "no row is asked to be what it is"
        );
        let named = Target::Class("c".to_string());
        let drawn = sampler(TargetsKind::Label, Some(&named)).draw(1_000, &mut random());
        assert!(drawn.classes().expect("classes").contains(&2));
    }

    #[test]
    fn judging_asks_for_another_decision() {
        let labels = [0u32, 1].repeat(100);
        let targets = sampler(TargetsKind::Label, None).draw_other(&labels, &mut random());
        let target = targets.classes().expect("classes");
        assert!(target.iter().zip(&labels).all(|(target, decided)| target != decided));
        let named = Target::Class("a".to_string());
        let targets = sampler(TargetsKind::Label, Some(&named)).draw_other(&labels, &mut random());
        assert!(
            targets
                .classes()
                .expect("classes")
                .iter()
                .skip(1)
                .step_by(2)
                .all(|target| *target == 0)
        );
        // A distribution is asked for as explanations do: all of it on one class.
        let soft = sampler(TargetsKind::Distribution, Some(&named));
        let Targets::Distributions { classes, values } = soft.draw_other(&labels, &mut random())
        else {
            panic!("distributions")
        };
        for ((target, decided), shares) in classes.iter().zip(&labels).zip(values.chunks_exact(3)) {
            assert_ne!(target, decided);
            assert!(
                *decided == 0 || *target == 0,
                "the job's decided class where the row has another"
            );
            assert_eq!(shares[*target as usize], 1.0);
            assert_eq!(shares.iter().sum::<f32>(), 1.0);
        }
        let drawn = soft.draw_unlike(&labels, &mut random());
        let mut pairs = drawn.classes().expect("classes").iter().zip(&labels);
        assert!(
            pairs.all(|(target, decided)| target != decided),
            "no row is asked to be what it is"
        );
    }

    #[test]
    fn soft_targets_demand_a_probability_or_a_distribution_that_occurs() {
        let Targets::Classes { probabilities, .. } =
            sampler(TargetsKind::Probability, None).draw(50, &mut random())
        else {
            panic!("classes")
        };
        assert!(probabilities.iter().all(|least| (0.5..0.95).contains(least)));
        let Targets::Distributions { classes, values } =
            sampler(TargetsKind::Distribution, None).draw(50, &mut random())
        else {
            panic!("distributions")
        };
        for (class, row) in classes.iter().zip(values.chunks_exact(3)) {
            assert_eq!(row[*class as usize], if *class == 0 { 0.7 } else { 0.6 });
        }
    }

    #[test]
    fn ranges_lie_around_values_that_occur_or_are_the_job_s() {
        let codec = TargetCodec::Range { mean: 0.0, std: 1.0 };
        let scores =
            Scores { rows: 2, outcome: Outcome::Values(vec![10.0, 20.0]), failures: Vec::new() };
        let target = Target::Range { low: 14.0, high: 16.0 };
        let sampler = TargetSampler::new(&codec, &scores, Some(&target));
        let Targets::Ranges { low, high } = sampler.draw(1_000, &mut random()) else {
            panic!("ranges")
        };
        let decided = low.iter().filter(|low| **low == 14.0).count();
        assert!((400..600).contains(&decided), "{decided}");
        assert!(low.iter().zip(&high).all(|(low, high)| high - low == 2.0));
        assert!(low.iter().all(|low| [9.0, 14.0, 19.0].contains(low)));
    }
}
