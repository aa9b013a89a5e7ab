//! The hidden rule of the lender: what its models have to discover. It looks at means, record and loan,
//! not at sex, region or marital status; where those matter to a model, it is through other columns.

use super::applicant::{Applicant, Loan, Money};
use super::category::{Employment, Housing, Purpose};

/// Yearly interest of a loan.
const INTEREST: f64 = 0.08;
/// Share of other debts that is paid back every month.
const DEBT_SERVICE: f64 = 0.025;
/// Points at which approval and rejection are equally likely.
const CUTOFF: f64 = 1.25;
/// How sharply the decision turns at the cutoff: officers disagree about cases near it. Chosen so that
/// no model can be right on much more than nine applications in ten.
const SHARPNESS: f64 = 2.6;

/// How likely the application is approved.
pub(super) fn approval(applicant: &Applicant) -> f64 {
    let points = points(applicant);
    1.0 / (1.0 + (SHARPNESS * (CUTOFF - points)).exp())
}

fn points(Applicant { person, money, loan }: &Applicant) -> f64 {
    let instalment = loan.amount * (1.0 / f64::from(loan.term_months) + INTEREST / 12.0);
    let burden = (instalment + money.debt * DEBT_SERVICE) * 12.0 / money.income;
    let cushion = money.savings / (money.savings + 6.0 * instalment);
    // The loan should be paid back before the borrower is 75.
    let late_end = person.age * 12 + loan.term_months > 75 * 12;
    affordability(burden)
        + 1.1 * cushion
        + record(money)
        + work(person.employment, cushion, money)
        + home(money.housing)
        + risk(loan, burden)
        - if late_end { 1.0 } else { 0.0 }
}

/// Comfortable up to a quarter of the income, then worse and worse, then simply bad.
fn affordability(burden: f64) -> f64 {
    (5.0 * (0.25 - burden)).clamp(-3.0, 0.6)
}

/// A long history helps, a late payment hurts; it hurts more where there is little else to go by.
fn record(money: &Money) -> f64 {
    let months = f64::from(money.credit_history_months);
    let thin = money.credit_history_months < 36;
    let per_late_payment = if thin { 0.95 } else { 0.6 };
    let late = (f64::from(money.late_payments) * per_late_payment).min(3.0);
    let crowded = (f64::from(money.open_accounts - 6) * 0.15).clamp(0.0, 0.9);
    1.5 * months / (months + 50.0) - late - crowded
}

fn work(employment: Employment, cushion: f64, money: &Money) -> f64 {
    match employment {
        Employment::Employed => 0.3,
        Employment::PublicSector => 0.5,
        Employment::SelfEmployed if money.credit_history_months < 36 => -0.6,
        Employment::SelfEmployed => -0.05,
        // Savings can stand in for a salary, but only ample ones.
        Employment::Unemployed if cushion > 0.8 => -0.2,
        Employment::Unemployed => -1.2,
        Employment::Retired => 0.1,
        Employment::Student => -0.5,
    }
}

fn home(housing: Housing) -> f64 {
    match housing {
        Housing::Own => 0.4,
        Housing::Mortgage => 0.25,
        Housing::Rent => 0.0,
        Housing::WithFamily => -0.1,
    }
}

fn risk(loan: &Loan, burden: f64) -> f64 {
    match loan.purpose {
        Purpose::Car => 0.1,
        Purpose::HomeImprovement => 0.2,
        // One loan instead of many is welcome as long as it can be carried.
        Purpose::DebtConsolidation if burden < 0.3 => 0.2,
        Purpose::DebtConsolidation => -0.4,
        Purpose::Business => -0.5,
        Purpose::Education => 0.15,
        Purpose::Medical | Purpose::Other => 0.0,
    }
}
