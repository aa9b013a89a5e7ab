//! What refinement must never do, over random schemas, tables, models and budgets; and what it must find
//! where the space is small.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use proptest::prelude::*;
use serde_json::Value;

use super::{Change, Changes, Costs, Outcomes, QueryCache, RequestBatch, difference};
use crate::artefact::{Description, ModelForm, Origin};
use crate::constrain::Observed;
use crate::constrain::tests::Case;
use crate::constrain::tests::random::{CaseRandom, case, coupled_table, table};
use crate::error::Result;
use crate::explain::method::Proposals;
use crate::explain::{ColumnIndices, ExplainSetup, ExplainStats, Explainer, RobustModels, Worker};
use crate::feature::{Cell, Cells, RowReader, Rows};
use crate::job::{
    Balance, ExplainJob, ExplainMethod, Method, Preset, ProbabilitiesSpec, Refine, Step, Target,
    TargetsKind, TaskSpec,
};
use crate::metrics::Status;
use crate::nearest::{LEAST_POINTS, NULL_POINT, PointColumn, Points};
use crate::nn::{ActorShape, Form, Generator};
use crate::predictor::{
    NO_CLASS, Outcome, Predictor, Reach, Responses, RowFailure, Scores, Task, Values, Variant,
    Variants,
};
use crate::runtime::Streams;
use crate::target::{TargetCodec, is_valid};

/// A model that weighs every feature: numbers by their size, categories by their code.
#[derive(Clone)]
struct Weighing {
    task: Task,
    reader: RowReader,
    weights: Vec<f64>,
    threshold: f64,
    tells: bool,
    /// Whether some rows get no counterfactual.
    fails: bool,
    /// Whether it looks at numbers by steps only, and shows where they are.
    steps: bool,
}

/// Where a model that looks at steps sees a number change.
fn breakpoints() -> impl Iterator<Item = f64> {
    (-400..=400).map(|step| f64::from(step) * 7.5)
}

/// What such a model sees of a number.
fn seen(number: f64) -> f64 {
    breakpoints().find(|point| number <= *point).unwrap_or(4000.0)
}

impl Weighing {
    fn fails_on(&self, weight: f64) -> bool {
        self.fails && (weight * 1000.0) as i64 % 7 == 0
    }

    fn weigh(&self, rows: &Rows, row: usize) -> f64 {
        let part = |(cells, weight): (&Cells, &f64)| match cells {
            Cells::Numbers(numbers) if numbers[row].is_nan() => *weight,
            Cells::Numbers(numbers) if self.steps => weight * (seen(numbers[row]) / 40.0).sin(),
            Cells::Numbers(numbers) => weight * (numbers[row] / 40.0).sin(),
            Cells::Codes(codes) => weight * (f64::from(codes[row] % 97) * 1.7).sin(),
        };
        rows.cells.iter().zip(&self.weights).map(part).sum()
    }
}

impl Predictor for Weighing {
    fn task(&self) -> &Task {
        &self.task
    }

    fn parallelism(&self) -> usize {
        1
    }

    fn breakpoints(&self, _feature: usize) -> Option<Arc<[f64]>> {
        self.steps.then(|| breakpoints().collect())
    }

    fn variants(&self, originals: &RecordBatch) -> Result<Option<Box<dyn Variants + '_>>> {
        let rows = self.reader.read(originals)?;
        Ok(self
            .steps
            .then(|| Box::new(SteppedCopies { model: self, rows }) as Box<dyn Variants + '_>))
    }

    fn predict(&self, batch: &RecordBatch) -> Result<Scores> {
        Ok(self.scores(&self.reader.read(batch)?))
    }
}

impl Weighing {
    fn scores(&self, rows: &Rows) -> Scores {
        let weights: Vec<f64> = (0..rows.len).map(|row| self.weigh(rows, row)).collect();
        let yes = |weight: &f64| {
            if self.fails_on(*weight) { NO_CLASS } else { u32::from(*weight > self.threshold) }
        };
        let failed = weights.iter().enumerate().filter(|(_, weight)| self.fails_on(**weight));
        let failure = |(row, _)| RowFailure { row, detail: "no answer".to_string() };
        let failures = failed.map(failure).collect();
        let shares = weights.iter().flat_map(|weight| {
            let share = 1.0 / (1.0 + (self.threshold - weight).exp());
            [1.0 - share, share]
        });
        let outcome = Outcome::Classes {
            labels: weights.iter().map(yes).collect(),
            probabilities: self.tells.then(|| shares.collect()),
        };
        Scores { rows: rows.len, outcome, failures }
    }
}

/// Rows of which a model that looks at steps shows everything.
struct SteppedCopies<'m> {
    model: &'m Weighing,
    rows: Rows,
}

impl SteppedCopies<'_> {
    fn changed<'e>(&self, copies: impl Iterator<Item = (u32, Vec<&'e Change>)>) -> Rows {
        let copies: Vec<(u32, Vec<&Change>)> = copies.collect();
        let mut rows = self.rows.take(&copies.iter().map(|(row, _)| *row).collect::<Vec<_>>());
        for (row, (_, edits)) in copies.iter().enumerate() {
            edits.iter().for_each(|edit| rows.set(edit.feature, row, edit.cell));
        }
        rows
    }
}

impl Variants for SteppedCopies<'_> {
    fn predict(&mut self, copies: &[Variant<'_>]) -> Result<Scores> {
        let copies = copies.iter().map(|copy| (copy.row, copy.edits.iter().collect()));
        Ok(self.model.scores(&self.changed(copies)))
    }

    fn responses(&mut self, copies: &[(Variant<'_>, &[Reach])]) -> Result<Option<Vec<Responses>>> {
        Ok(Some(copies.iter().map(|(copy, reach)| self.shown(copy, reach)).collect()))
    }
}

impl SteppedCopies<'_> {
    fn shown(&self, copy: &Variant<'_>, reach: &[Reach]) -> Responses {
        let mut values: Vec<(usize, Values)> = Vec::new();
        for (feature, reach) in reach.iter().enumerate() {
            match reach {
                Reach::Fixed => {}
                Reach::Codes(codes) => {
                    values.extend(codes.iter().map(|code| (feature, Values::Code(*code))));
                }
                Reach::Numbers(low, high) => {
                    let inside = breakpoints().filter(|point| low <= point && point < high);
                    let mut from = low.next_down();
                    for to in inside.chain([*high]) {
                        values.push((feature, Values::Numbers(from, to)));
                        from = to;
                    }
                }
            }
        }
        let change = |(feature, values): &(usize, Values)| match values {
            Values::Numbers(_, to) => Change { feature: *feature, cell: Cell::Number(*to) },
            Values::Code(code) => Change { feature: *feature, cell: Cell::Code(*code) },
        };
        let changes: Vec<Change> = values.iter().map(change).collect();
        let copies =
            changes.iter().map(|change| (copy.row, copy.edits.iter().chain([change]).collect()));
        let scores = self.model.scores(&self.changed(copies));
        Responses { values, scores: Scores { failures: Vec::new(), ..scores } }
    }
}

/// A table, a model and an explainer for them.
pub(in crate::explain) struct Ground {
    pub(in crate::explain) case: Case,
    model: Arc<Weighing>,
    pub(in crate::explain) robust: RobustModels,
    pub(in crate::explain) batch: RequestBatch,
    pub(in crate::explain) generated: Rows,
}

impl Ground {
    pub(in crate::explain) fn new(
        columns: &[crate::constrain::tests::random::Drawn],
        rows: usize,
        seed: u64,
    ) -> Ground {
        let mut dice = CaseRandom::new(seed);
        let case = match seed % 5 {
            0 | 1 => table(columns, rows, &mut dice),
            _ => coupled_table(columns, rows, &mut dice, seed),
        };
        let output = dice.output(&case);
        let generated = case.process(&output, &case.widest());
        Ground::of(case, generated, seed)
    }

    fn of(case: Case, generated: Rows, seed: u64) -> Ground {
        let rows = case.rows.len;
        let weights: Vec<f64> = (0..case.rows.cells.len())
            .map(|index| ((seed.rotate_left(index as u32 * 7) % 1000) as f64) / 250.0 - 2.0)
            .collect();
        let tells = seed.is_multiple_of(2);
        let classes = Arc::from(["no".to_string(), "yes".to_string()]);
        let mut model = Weighing {
            task: Task::Classification { classes, probabilities: tells },
            reader: RowReader::new(&case.schema),
            weights,
            threshold: (seed % 7) as f64 / 4.0 - 0.75,
            tells,
            fails: false,
            steps: seed % 3 == 1,
        };
        let decided = model.predict(&case.batch).expect("decided");
        model.fails = seed.is_multiple_of(3);
        let Outcome::Classes { labels, .. } = &decided.outcome else { unreachable!("classes") };
        let targets = labels.iter().map(|label| 1 - label).collect();
        let conditions = case.widest();
        let batch = RequestBatch {
            originals: case.rows.clone(),
            before: case.batch.clone(),
            targets: codec().labels(targets),
            decided,
            conditions,
            bounds: case.bounds.clone(),
            seeds: (0..rows as u64).collect(),
            draws: vec![0; rows],
        };
        let robust = RobustModels::default();
        Ground { case, model: Arc::new(model), robust, batch, generated }
    }

    /// The same with a model that looks at steps, and counterfactuals every row.
    fn stepped(
        columns: &[crate::constrain::tests::random::Drawn],
        rows: usize,
        seed: u64,
    ) -> Ground {
        let mut ground = Ground::new(columns, rows, seed);
        if let Some(model) = Arc::get_mut(&mut ground.model) {
            (model.steps, model.fails) = (true, false);
        }
        let decided = ground.model.predict(&ground.case.batch).expect("decided");
        let Outcome::Classes { labels, .. } = &decided.outcome else { unreachable!("classes") };
        ground.batch.targets = codec().labels(labels.iter().map(|label| 1 - label).collect());
        ground.batch.decided = decided;
        ground
    }

    pub(in crate::explain) fn worker(&self, job: &ExplainJob) -> Worker {
        let explainer = Explainer::new(
            Generator::untrained(self.shape(), &self.case.constraints),
            ExplainSetup {
                description: &self.description(),
                schema: Arc::clone(&self.case.schema),
                table: self.case.batch.schema(),
                columns: ColumnIndices {
                    key: vec![0],
                    features: (0..self.case.batch.num_columns()).collect(),
                    ..ColumnIndices::default()
                },
                predictor: Arc::clone(&self.model) as Arc<dyn Predictor>,
                robust: self.robust.clone(),
                decisions: None,
                target: &Target::Flip,
                explain: job,
                neighbours: Some(self.points()),
                streams: Streams::new(0),
            },
        );
        Arc::new(explainer.expect("an explainer")).worker().expect("a worker")
    }

    fn shape(&self) -> ActorShape {
        let layout = self.case.encoder.layout();
        ActorShape {
            latent: layout.width as i64,
            direct: 0,
            inputs: 4 + self.case.constraints.width() as i64,
            hidden: 4,
            form: Form::Paper,
            outcomes: 0,
        }
    }

    fn description(&self) -> Description {
        let table: &Schema = self.case.batch.schema_ref();
        Description {
            format: Description::format(),
            schema: self.case.schema.as_ref().clone(),
            column_types: table.fields().iter().map(|of| of.data_type().to_string()).collect(),
            stats: self.case.stats.clone(),
            observed: Observed::default(),
            layout: self.case.encoder.layout().as_ref().clone(),
            targets: codec(),
            autoencoder: None,
            actor: self.shape(),
            learnt: true,
            method: Method {
                preset: Preset::Paper,
                batch: Some(1),
                hidden: 4,
                learning_rate: 0.1,
                sparsity: None,
                consistency: None,
                reward: None,
                targets: TargetsKind::Label,
                balance: Balance::None,
            },
            figures: Value::Null,
            model: ModelForm {
                task: TaskSpec::Classification,
                classes: Vec::new(),
                probabilities: ProbabilitiesSpec::Auto,
                inputs: None,
                null_text: String::new(),
            },
            origin: Origin::default(),
        }
    }

    /// The table's own rows as neighbours, again and again until there are enough to compare with.
    fn points(&self) -> Points {
        let rows = self.case.rows.len;
        let again: Vec<u32> = (0..rows as u32).cycle().take(rows.max(2 * LEAST_POINTS)).collect();
        let cells = self.case.rows.take(&again).cells;
        let Outcome::Classes { labels, .. } = &self.batch.decided.outcome else {
            unreachable!("classes")
        };
        let slots = &self.case.encoder.layout().slots;
        let columns = cells.iter().zip(slots).map(|(cells, slots)| match cells {
            Cells::Numbers(numbers) => {
                let crate::encode::Slots::Numeric(slots) = slots else { unreachable!("numeric") };
                PointColumn::Numbers(numbers.iter().map(|of| slots.standardised(*of)).collect())
            }
            Cells::Codes(codes) => PointColumn::Codes(
                codes.iter().map(|code| u16::try_from(*code).unwrap_or(NULL_POINT)).collect(),
            ),
        });
        Points {
            len: again.len(),
            columns: columns.collect(),
            decisions: again.iter().map(|row| f64::from(labels[*row as usize])).collect(),
            exact: Vec::new(),
        }
    }

    pub(in crate::explain) fn refine(&self, job: &ExplainJob) -> Outcomes {
        let worker = self.worker(job);
        explained(&worker, &self.batch, &self.generated)
    }

    /// Some of the requests.
    pub(in crate::explain) fn some(&self, some: &[u32]) -> RequestBatch {
        RequestBatch {
            originals: self.batch.originals.take(some),
            before: crate::explain::take(&self.batch.before, some).expect("taken"),
            targets: self.batch.targets.take(some),
            decided: self.batch.decided.take(some),
            conditions: self.batch.conditions.take(some),
            bounds: self.batch.bounds.take(some),
            seeds: some.iter().map(|row| self.batch.seeds[*row as usize]).collect(),
            draws: vec![0; some.len()],
        }
    }

    fn costs(&self, rows: &Rows) -> Vec<f64> {
        let costs = Costs::new(&self.case.schema, self.case.encoder.layout());
        let lists = difference(&self.case.constraints, rows, &self.case.rows);
        let original = |row: usize| move |feature| self.case.rows.cell(feature, row);
        lists.iter().enumerate().map(|(row, changes)| costs.total(changes, original(row))).collect()
    }

    /// What the model says of rows now.
    pub(in crate::explain) fn predict(&self, rows: &Rows) -> Vec<bool> {
        let writer = crate::feature::RowWriter::new(&self.case.schema);
        let batch = writer.write(rows, &self.case.rows, &self.case.batch).expect("written");
        is_valid(&self.model.predict(&batch).expect("answers"), &self.batch.targets)
    }

    /// A row with each of some changes, and whether the model predicts the target for it.
    fn proposals(&self, row: usize, space: &[Changes]) -> (Rows, Vec<bool>) {
        let at = vec![row as u32; space.len()];
        let original = self.case.rows.take(&at);
        let mut proposals = original.clone();
        for (index, changes) in space.iter().enumerate() {
            let original = |feature: usize| self.case.rows.cell(feature, row);
            self.case.constraints.apply(&mut proposals, index, changes, original);
        }
        let writer = crate::feature::RowWriter::new(&self.case.schema);
        let before = crate::explain::take(&self.case.batch, &at).expect("taken");
        let batch = writer.write(&proposals, &original, &before).expect("written");
        let scores = self.model.predict(&batch).expect("answers");
        (proposals, is_valid(&scores, &self.batch.targets.take(&at)))
    }

    /// Every row that a row may become, by walking through all of them.
    fn space(&self, row: usize) -> Option<Vec<Changes>> {
        let conditions = self.case.widest();
        let feasible = self.case.constraints.feasible(&conditions, &self.case.bounds, row);
        let mut space: Vec<Changes> = vec![Changes::new()];
        for feature in 0..self.case.rows.cells.len() {
            let original = self.case.rows.cell(feature, row);
            let options = feasible.options(feature, original, 50)?;
            let with = |cell: Option<Cell>| {
                space.iter().map(move |changes| {
                    let mut changes = changes.clone();
                    changes.extend(cell.map(|cell| Change { feature, cell }));
                    changes
                })
            };
            let cells = [None].into_iter().chain(options.into_iter().map(Some));
            space = cells.flat_map(with).collect();
            if space.len() > 2000 {
                return None;
            }
        }
        let original = |feature: usize| self.case.rows.cell(feature, row);
        space.retain(|changes| self.case.constraints.is_coherent(changes, original));
        Some(space)
    }
}

/// Models that weigh features a little differently, of classes in another order: so many of them must agree.
fn beside(ground: &mut Ground, seed: u64, needed: u32) {
    let other = |number: u64| {
        let mut model = ground.model.as_ref().clone();
        let shift = |at: usize| ((seed.rotate_left(at as u32 * 11) ^ number) % 100) as f64 / 100.0;
        let weights = model.weights.iter_mut().enumerate();
        weights.for_each(|(at, weight)| *weight += shift(at) - 0.5);
        model.fails = false;
        Arc::new(model) as Arc<dyn Predictor>
    };
    let models = (1..=3).map(other).collect();
    let robust = RobustModels::new(models, needed, ground.model.task());
    ground.robust = robust.expect("models of the same classes");
}

/// What is made of a generator's proposals; or of what another method proposes.
pub(in crate::explain) fn explained(
    worker: &Worker,
    batch: &RequestBatch,
    generated: &Rows,
) -> Outcomes {
    let mut stats = ExplainStats::default();
    if !worker.shared.refiner.asks_generator() {
        return worker.explain_batch(batch, &mut stats).expect("explained");
    }
    let cache = QueryCache::new(worker, batch).expect("a cache");
    let changes = difference(&worker.shared.constraints, generated, &batch.originals);
    let proposals = Proposals::plain(changes.into_iter().map(Some).collect());
    worker.refine(cache, proposals, Instant::now(), &mut stats).expect("refined")
}

fn codec() -> TargetCodec {
    let classes = vec!["no".to_string(), "yes".to_string()];
    TargetCodec::Classes { classes, kind: TargetsKind::Label }
}

fn job(mode: Refine, budget: u32, max_changes: Option<u32>) -> ExplainJob {
    let mut job = ExplainJob::usual(mode);
    job.refine.queries_per_row = budget;
    job.refine.max_changes = max_changes;
    job.refine.min_score = Some(0.0);
    job
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn refinement_keeps_its_promises(
        (columns, rows, seed) in case(),
        budget in prop_oneof![1..6u32, Just(30u32), Just(400u32)],
        max_changes in prop_oneof![3 => Just(None), 1 => (1..3u32).prop_map(Some)],
    ) {
        let ground = Ground::new(&columns, rows, seed);
        let before = ground.refine(&job(Refine::Off, budget, None));
        let cost_before = ground.costs(&before.rows);
        for (mode, max_changes) in [(Refine::Repair, None), (Refine::Full, max_changes)] {
            let after = ground.refine(&job(mode, budget, max_changes));
            let cost = ground.costs(&after.rows);
            let said = ground.predict(&after.rows);
            let case = &ground.case;
            let broken = case.constraints.violations(&after.rows, &case.rows, &case.bounds);
            prop_assert!(broken.is_empty(), "{broken:?}");
            for row in 0..rows {
                prop_assert!(after.findings[row].queries <= budget, "asked too often");
                prop_assert_eq!(after.findings[row].valid, said[row], "not what the model says");
                prop_assert_eq!(after.findings[row].valid, after.findings[row].status == Status::Solved);
                prop_assert!(!after.findings[row].certified || after.findings[row].status == Status::Infeasible);
                if before.findings[row].valid && max_changes.is_none() {
                    prop_assert!(after.findings[row].valid, "{mode:?} lost a valid answer");
                    let (new, old) = (cost[row], cost_before[row]);
                    prop_assert!(new <= old + 1e-9, "{mode:?} costs {new}, before {old}");
                }
                if let Some(most) = max_changes {
                    let changed = difference(&case.constraints, &after.rows, &case.rows)[row].len();
                    prop_assert!(changed <= most as usize, "{changed} changes");
                }
            }
        }
    }

    #[test]
    fn numbers_stop_where_the_model_begins_to_say_so((columns, rows, seed) in case()) {
        let ground = Ground::stepped(&columns, rows, seed);
        let worker = ground.worker(&job(Refine::Full, 400, None));
        let refiner = &worker.shared.refiner;
        let after = ground.refine(&job(Refine::Full, 400, None));
        let (case, conditions) = (&ground.case, ground.case.widest());
        let changes = difference(&case.constraints, &after.rows, &case.rows);
        for (row, changes) in changes.iter().enumerate() {
            let [change] = changes[..] else { continue };
            // Without a question left, what was found is what there is.
            if !after.findings[row].valid || after.findings[row].queries >= 400 {
                continue;
            }
            let feasible = case.constraints.feasible(&conditions, &case.bounds, row);
            let original = |feature: usize| case.rows.cell(feature, row);
            let tightened = refiner.tightened(feasible, change, original(change.feature));
            let coherent = tightened
                .is_none_or(|tightened| case.constraints.is_coherent(&[tightened], original));
            // But for the last bits, which steps from the original round.
            let same = tightened.is_some_and(|tightened| match (tightened.cell, change.cell) {
                (Cell::Number(one), Cell::Number(two)) => (one - two).abs() <= 1e-12 * one.abs().max(1.0),
                (one, two) => one == two,
            });
            prop_assert!(!coherent || same, "{change:?} could be {tightened:?}");
        }
    }

    #[test]
    fn answers_hold_under_the_models_beside_the_predictor(
        (columns, rows, seed) in case(),
        budget in prop_oneof![Just(30u32), Just(400u32)],
        needed in 1..4u32,
        searched: bool,
    ) {
        let mut ground = Ground::new(&columns, rows, seed);
        let mut job = job(Refine::Full, budget, None);
        if searched {
            job.method = ExplainMethod::Search;
        }
        let alone = ground.refine(&job);
        prop_assert!(alone.findings.iter().all(|finding| finding.robust.is_none()));
        beside(&mut ground, seed, needed);
        let after = ground.refine(&job);
        let said = ground.predict(&after.rows);
        let writer = crate::feature::RowWriter::new(&ground.case.schema);
        let batch = writer.write(&after.rows, &ground.case.rows, &ground.case.batch).expect("written");
        let mut held = vec![0u32; rows];
        for model in ground.robust.predictors() {
            let holds = is_valid(&model.predict(&batch).expect("answers"), &ground.batch.targets);
            held.iter_mut().zip(holds).for_each(|(held, holds)| *held += u32::from(holds));
        }
        let broken =
            ground.case.constraints.violations(&after.rows, &ground.case.rows, &ground.case.bounds);
        prop_assert!(broken.is_empty(), "{broken:?}");
        for row in 0..rows {
            let finding = after.findings[row];
            prop_assert_eq!(finding.valid, said[row], "not what the model says");
            prop_assert!(finding.queries <= budget * 4, "asked too often");
            prop_assert_eq!(finding.robust.is_some(), finding.status == Status::Solved);
            prop_assert_eq!(finding.robust.unwrap_or(held[row]), held[row], "not what they say");
            let enough = finding.robust.is_some_and(|held| held >= needed);
            prop_assert_eq!(finding.robustness_cost.is_some(), enough, "{:?}", finding);
            prop_assert!(!(finding.certified && alone.findings[row].valid), "proven of a row that has one");
        }
    }

    #[test]
    fn small_spaces_are_searched_to_the_end((columns, rows, seed) in case()) {
        let ground = Ground::new(&columns, rows, seed);
        let found = ground.refine(&job(Refine::Full, 2500, None));
        for row in 0..rows {
            let Some(space) = ground.space(row) else { continue };
            let mut proposals = ground.case.rows.take(&vec![row as u32; space.len()]);
            for (index, changes) in space.iter().enumerate() {
                let original = |feature: usize| ground.case.rows.cell(feature, row);
                ground.case.constraints.apply(&mut proposals, index, changes, original);
            }
            let at = vec![row as u32; space.len()];
            let writer = crate::feature::RowWriter::new(&ground.case.schema);
            let before = crate::explain::take(&ground.case.batch, &at).expect("taken");
            let batch = writer.write(&proposals, &ground.case.rows.take(&at), &before);
            let scores = ground.model.predict(&batch.expect("written")).expect("answers");
            let solvable = is_valid(&scores, &ground.batch.targets.take(&at)).contains(&true);
            prop_assert_eq!(found.findings[row].valid, solvable, "row {} of {} ways", row, space.len());
            // What the model has not answered proves nothing.
            let failed = scores.failures.iter().any(|failure| !space[failure.row].is_empty());
            prop_assert_eq!(found.findings[row].certified, !solvable && !failed);
        }
    }

    #[test]
    fn a_margin_costs_no_answer(
        (columns, rows, seed) in case(),
        least in prop_oneof![Just(None), Just(Some(0.55)), Just(Some(0.8)), Just(Some(1.0))],
    ) {
        let ground = Ground::new(&columns, rows, seed);
        let without = ground.refine(&job(Refine::Full, 2500, None));
        let mut job = job(Refine::Full, 2500, None);
        job.refine.min_score = least;
        let found = ground.refine(&job);
        let said = ground.predict(&found.rows);
        for (row, said) in said.into_iter().enumerate() {
            prop_assert_eq!(found.findings[row].valid, said, "not what the model says");
            prop_assert!(found.findings[row].valid || !without.findings[row].valid, "row {} lost its answer", row);
            prop_assert!(!found.findings[row].certified || !without.findings[row].valid, "there is an answer");
        }
    }

    #[test]
    fn every_answer_is_as_plausible_as_it_must_be(
        (columns, rows, seed) in case(),
        least in prop_oneof![Just(0.3), Just(0.7), Just(1.0)],
        mode in prop_oneof![Just(Refine::Off), Just(Refine::Repair), Just(Refine::Full)],
    ) {
        let ground = Ground::new(&columns, rows, seed);
        let without = ground.refine(&job(mode, 2500, None));
        let mut job = job(mode, 2500, None);
        job.refine.min_plausibility = least;
        let worker = ground.worker(&job);
        let plausibility = worker.shared.plausibility.as_ref().expect("enough rows");
        let found = ground.refine(&job);
        let said = ground.predict(&found.rows);
        for (row, said) in said.into_iter().enumerate() {
            prop_assert_eq!(found.findings[row].valid, said, "shows what is refused as an answer");
            prop_assert_eq!(found.findings[row].valid, found.findings[row].status == Status::Solved);
            prop_assert!(!found.findings[row].valid || plausibility.of(&found.rows, row) >= least);
            prop_assert!(!found.findings[row].certified || !without.findings[row].valid, "there is an answer");
            let Some(space) = ground.space(row).filter(|_| mode == Refine::Full) else { continue };
            let (proposals, reached) = ground.proposals(row, &space);
            let predictions = (0..space.len()).filter(|index| reached[*index]);
            let plausible = predictions.map(|index| plausibility.of(&proposals, index)).any(|p| p >= least);
            prop_assert_eq!(found.findings[row].valid, plausible, "row {} of {} ways", row, space.len());
        }
    }

    #[test]
    fn what_an_entry_gets_depends_on_its_own_row((columns, rows, seed) in case()) {
        let ground = Ground::new(&columns, rows, seed);
        let mut job = job(Refine::Full, 100, None);
        // Networks may round otherwise in a block of another size.
        job.refine.skip = vec![Step::Candidates];
        let worker = ground.worker(&job);
        let whole = explained(&worker, &ground.batch, &ground.generated);
        let some: Vec<u32> = (0..rows as u32).step_by(2).collect();
        let batch = ground.some(&some);
        let generated = ground.generated.take(&some);
        let part = explained(&worker, &batch, &generated);
        let constraints = &ground.case.constraints;
        let lists = difference(constraints, &whole.rows, &ground.case.rows);
        for (index, changes) in difference(constraints, &part.rows, &batch.originals).iter().enumerate() {
            let row = some[index] as usize;
            prop_assert_eq!(changes, &lists[row]);
            prop_assert_eq!(part.findings[index].queries, whole.findings[row].queries);
            prop_assert_eq!(part.findings[index].status, whole.findings[row].status);
        }
    }
}

/// Two numbers of which the first is never greater, and a model that wants the first to be more than it is.
pub(in crate::explain) fn part_and_whole((part, whole): (f64, f64), needed: f64) -> Ground {
    let text = "[[feature]]\nname = \"part\"\nkind = \"numeric\"\nrange = [0, 60]\n\
                [[feature]]\nname = \"whole\"\nkind = \"numeric\"\nrange = [0, 60]\n\
                [[rule]]\ncheck = \"part <= whole\"\n";
    let column = |original: f64| {
        Arc::new(arrow::array::Float64Array::from(vec![original, 50.0])) as arrow::array::ArrayRef
    };
    let case = Case::parse(text, vec![("part", column(part)), ("whole", column(whole))]);
    let generated = Rows { len: 2, cells: vec![Cells::Numbers(vec![58.0, 50.0]); 2] };
    let mut ground = Ground::of(case, generated, 0);
    let mut model = Weighing {
        task: ground.model.task.clone(),
        reader: RowReader::new(&ground.case.schema),
        weights: vec![1.0, 0.0],
        threshold: (needed / 40.0).sin(),
        tells: true,
        fails: false,
        steps: false,
    };
    ground.batch.decided = model.predict(&ground.case.batch).expect("decided");
    model.fails = false;
    ground.batch.targets = codec().labels(vec![1, 0]);
    ground.model = Arc::new(model);
    ground
}

#[test]
fn a_rule_on_the_way_back_does_not_end_it() {
    // The whole can only go back as far as the part does.
    let ground = part_and_whole((2.0, 3.0), 20.0);
    let mut job = job(Refine::Full, 400, None);
    job.refine.skip = vec![Step::Neighbours, Step::Candidates];
    let found = ground.refine(&job);
    let numbers = |feature: usize| match found.rows.cell(feature, 0) {
        Cell::Number(number) => number,
        Cell::Code(_) => unreachable!("a number"),
    };
    assert!(found.findings[0].valid);
    let (part, whole) = (numbers(0), numbers(1));
    assert!((20.0..22.0).contains(&part), "{part}");
    assert!((part..part + 2.0).contains(&whole), "{whole} for {part}");
}

#[test]
fn what_moved_along_goes_back_when_it_is_needed_no_more() {
    let ground = part_and_whole((2.0, 30.0), 20.0);
    let mut job = job(Refine::Full, 400, None);
    // The part is not tried alone.
    job.refine.skip = vec![Step::Neighbours, Step::Candidates, Step::Reversion];
    let found = ground.refine(&job);
    assert!(found.findings[0].valid);
    assert_eq!(found.rows.cell(1, 0), Cell::Number(30.0));
}
