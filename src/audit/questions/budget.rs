//! How the questions that a job allows are shared among the sections that ask.

/// What a section would ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SectionNeed {
    /// Its name.
    pub section: &'static str,
    /// Rows that it would look at.
    pub rows: u64,
    /// Questions about a row, at most.
    pub per_row: u64,
    /// Questions before the first row.
    pub before: u64,
    /// Questions about further rows.
    pub more: u64,
}

/// What a section may ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Allotment {
    /// Whose it is.
    pub need: SectionNeed,
    /// Questions that it may ask.
    pub questions: u64,
}

impl Allotment {
    /// Rows for which the questions are enough, whatever they cost.
    pub(super) fn rows(&self) -> u64 {
        let left = self.questions.saturating_sub(self.need.before);
        self.need.rows.min(left / self.need.per_row.max(1))
    }

    /// What is said before anything is asked.
    pub(super) fn said(&self) -> String {
        let SectionNeed { section, rows, .. } = &self.need;
        let (certain, questions) = (self.rows(), self.questions);
        let sampled = match certain < *rows {
            true => format!("{certain} of {rows} rows, more if they cost less"),
            false => format!("{rows} rows"),
        };
        format!("`{section}` may ask {questions} times: enough for {sampled}")
    }
}

/// Shares the questions: whoever needs less than an equal share gets what is needed, the others share what is left.
pub(super) fn share(needs: &[SectionNeed], budget: u64) -> Vec<Allotment> {
    let cost = |need: &SectionNeed| {
        need.rows.saturating_mul(need.per_row).saturating_add(need.before + need.more)
    };
    let mut order: Vec<usize> = (0..needs.len()).collect();
    order.sort_by_key(|index| cost(&needs[*index]));
    let mut questions = vec![0; needs.len()];
    let mut left = budget;
    for (position, index) in order.iter().enumerate() {
        let equal = left / (needs.len() - position) as u64;
        questions[*index] = cost(&needs[*index]).min(equal);
        left -= questions[*index];
    }
    let allotted = needs.iter().zip(questions);
    allotted.map(|(need, questions)| Allotment { need: need.clone(), questions }).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn need(rows: u64, per_row: u64) -> SectionNeed {
        SectionNeed { section: "actions", rows, per_row, before: 0, more: 0 }
    }

    #[test]
    fn who_needs_little_gets_it_and_the_others_share_the_rest() {
        let found = share(&[need(1_000, 100), need(10, 10), need(1_000_000, 7)], 60_100);
        let questions: Vec<u64> = found.iter().map(|one| one.questions).collect();
        assert_eq!(questions, [30_000, 100, 30_000]);
        assert_eq!(found[0].rows(), 300);
        expect_test::expect![[
            "`actions` may ask 30000 times: enough for 300 of 1000 rows, more if they cost less"
        ]]
        .assert_eq(&found[0].said());
        expect_test::expect![["`actions` may ask 100 times: enough for 10 rows"]]
            .assert_eq(&found[1].said());
    }

    proptest! {
        #[test]
        fn all_together_keep_to_the_budget_and_nobody_envies(
            needs in prop::collection::vec((0u64..100_000, 1u64..1_000), 0..8),
            budget in 0u64..10_000_000,
        ) {
            let needs: Vec<SectionNeed> = needs.into_iter().map(|(rows, per_row)| need(rows, per_row)).collect();
            let found = share(&needs, budget);
            let total: u64 = found.iter().map(|one| one.questions).sum();
            prop_assert!(total <= budget);
            let most = found.iter().map(|one| one.questions).max().unwrap_or(0);
            for one in &found {
                let cost = one.need.rows * one.need.per_row;
                prop_assert!(one.questions <= cost);
                // Whoever gets less than is needed gets as much as anybody, but for what does not divide.
                prop_assert!(one.questions == cost || one.questions + found.len() as u64 >= most);
            }
        }
    }
}
