//! Who applies, with what means, for which loan. Every quantity is drawn given the ones before it, so
//! that the columns hang together as real ones do: older people have longer histories, degrees raise
//! incomes, large loans run longer. A hidden `prudence` ties late payments, savings and debts.

use super::category::{Education, Employment, Housing, MaritalStatus, Purpose, Region, Sex};
use super::dice::Dice;

/// Youngest and oldest applicant.
const AGES: (i32, i32) = (18, 80);
/// Most months of history: a file opened at 18 and kept to 80.
const LONGEST_HISTORY: i32 = (AGES.1 - AGES.0) * 12;

/// Everything about one application but its decision.
pub(super) struct Applicant {
    pub(super) person: Person,
    pub(super) money: Money,
    pub(super) loan: Loan,
}

/// Who applies.
pub(super) struct Person {
    pub(super) age: i32,
    pub(super) sex: Sex,
    pub(super) region: Region,
    pub(super) education: Education,
    pub(super) employment: Employment,
    pub(super) marital_status: MaritalStatus,
}

/// With what means.
pub(super) struct Money {
    pub(super) income: f64,
    pub(super) savings: f64,
    pub(super) debt: f64,
    pub(super) housing: Housing,
    pub(super) credit_history_months: i32,
    pub(super) late_payments: i32,
    pub(super) open_accounts: i32,
}

/// For which loan.
pub(super) struct Loan {
    pub(super) amount: f64,
    pub(super) term_months: i32,
    pub(super) purpose: Purpose,
}

impl Applicant {
    /// Draws one application.
    pub(super) fn draw(dice: &mut Dice) -> Applicant {
        let person = Person::draw(dice);
        let money = Money::draw(&person, dice);
        let loan = Loan::draw(&person, &money, dice);
        Applicant { person, money, loan }
    }
}

impl Person {
    fn draw(dice: &mut Dice) -> Person {
        let age = age(dice);
        let sex = Sex::at(dice.pick(&[0.48, 0.52]));
        let region = Region::at(dice.pick(&[0.22, 0.24, 0.20, 0.18, 0.16]));
        let education = education(age, region, dice);
        let employment = employment(age, education, dice);
        let marital_status = marital_status(age, dice);
        Person { age, sex, region, education, employment, marital_status }
    }
}

/// Most applicants are between 25 and 60, with a tail of older ones.
fn age(dice: &mut Dice) -> i32 {
    let blend = 0.6 * dice.uniform() + 0.4 * dice.uniform();
    let share = blend * (0.6 + 0.4 * blend);
    AGES.0 + (f64::from(AGES.1 - AGES.0) * share) as i32
}

fn education(age: i32, region: Region, dice: &mut Dice) -> Education {
    let weights = match (age, region) {
        (..22, _) => [0.20, 0.75, 0.05, 0.00],
        (_, Region::Capital) => [0.08, 0.36, 0.34, 0.22],
        (60.., _) => [0.24, 0.50, 0.18, 0.08],
        _ => [0.13, 0.48, 0.27, 0.12],
    };
    Education::at(dice.pick(&weights))
}

fn employment(age: i32, education: Education, dice: &mut Dice) -> Employment {
    let weights = match (age, education) {
        (..25, _) => [0.46, 0.06, 0.04, 0.10, 0.00, 0.34],
        (64.., _) => [0.10, 0.03, 0.10, 0.01, 0.76, 0.00],
        (_, Education::Primary) => [0.63, 0.07, 0.13, 0.16, 0.01, 0.00],
        (_, Education::Secondary) => [0.66, 0.11, 0.14, 0.08, 0.01, 0.00],
        _ => [0.62, 0.17, 0.15, 0.04, 0.01, 0.01],
    };
    Employment::at(dice.pick(&weights))
}

fn marital_status(age: i32, dice: &mut Dice) -> MaritalStatus {
    let weights = match age {
        ..28 => [0.85, 0.14, 0.01, 0.00],
        28..45 => [0.40, 0.50, 0.09, 0.01],
        45..65 => [0.19, 0.59, 0.18, 0.04],
        _ => [0.08, 0.56, 0.14, 0.22],
    };
    MaritalStatus::at(dice.pick(&weights))
}

impl Money {
    fn draw(person: &Person, dice: &mut Dice) -> Money {
        let prudence = dice.normal();
        let income = income(person, dice);
        let housing = housing(person.age, income, dice);
        let credit_history_months = credit_history_months(person.age, dice);
        let usual_accounts = 1.6 + f64::from(credit_history_months) / 110.0 - 0.3 * prudence;
        Money {
            income,
            savings: savings(person.age, income, prudence, dice),
            debt: debt(income, prudence, dice),
            housing,
            credit_history_months,
            late_payments: late_payments(person.employment, income, prudence, dice),
            open_accounts: dice.count(usual_accounts.max(0.5), 20),
        }
    }
}

/// A year's income: log-normal around what degree, work, age, region and, as in the world, sex make
/// of it.
fn income(person: &Person, dice: &mut Dice) -> f64 {
    let education = match person.education {
        Education::Primary => 0.0,
        Education::Secondary => 0.16,
        Education::Bachelor => 0.44,
        Education::Postgraduate => 0.66,
    };
    let (employment, spread) = match person.employment {
        Employment::Employed => (0.0, 0.34),
        Employment::PublicSector => (0.04, 0.22),
        Employment::SelfEmployed => (0.02, 0.62),
        Employment::Unemployed => (-0.95, 0.35),
        Employment::Retired => (-0.35, 0.32),
        Employment::Student => (-0.85, 0.40),
    };
    let region = match person.region {
        Region::Capital => 0.16,
        Region::North => 0.02,
        Region::South => -0.06,
        Region::East => -0.16,
        Region::West => 0.05,
    };
    let sex = if person.sex == Sex::Female { -0.09 } else { 0.09 };
    let years_from_peak = f64::from(person.age - 51);
    let career = -0.0006 * years_from_peak * years_from_peak;
    let log = 10.36 + education + employment + region + sex + career + spread * dice.normal();
    rounded(log.exp(), 100.0, 3_000.0, 600_000.0)
}

fn housing(age: i32, income: f64, dice: &mut Dice) -> Housing {
    let weights = match (age, income > 38_000.0) {
        (..26, _) => [0.02, 0.05, 0.48, 0.45],
        (26..55, true) => [0.14, 0.48, 0.34, 0.04],
        (26..55, false) => [0.10, 0.26, 0.53, 0.11],
        (_, true) => [0.56, 0.20, 0.22, 0.02],
        (_, false) => [0.42, 0.12, 0.40, 0.06],
    };
    Housing::at(dice.pick(&weights))
}

/// Bounded by the years since 18. Some have borrowed next to nothing, whatever their age.
fn credit_history_months(age: i32, dice: &mut Dice) -> i32 {
    if dice.chance(0.07) {
        return (7.0 * dice.uniform()) as i32;
    }
    let unused = dice.uniform();
    let share = 1.0 - 0.9 * unused * (0.3 + 0.7 * unused);
    let months = f64::from((age - AGES.0) * 12) * share + 6.0 * dice.uniform();
    (months as i32).min(LONGEST_HISTORY)
}

fn savings(age: i32, income: f64, prudence: f64, dice: &mut Dice) -> f64 {
    if dice.chance(0.08) {
        return 0.0;
    }
    let years = f64::from(age - 40);
    let log = -1.5 + 0.014 * years + 0.5 * prudence + 0.8 * dice.normal();
    rounded(income * log.exp(), 100.0, 0.0, 1_000_000.0)
}

/// What is owed already, home loans aside.
fn debt(income: f64, prudence: f64, dice: &mut Dice) -> f64 {
    if dice.chance(0.22) {
        return 0.0;
    }
    let log = -1.7 - 0.35 * prudence + 0.85 * dice.normal();
    rounded(income * log.exp(), 100.0, 0.0, 400_000.0)
}

/// Payments missed in the last two years.
fn late_payments(employment: Employment, income: f64, prudence: f64, dice: &mut Dice) -> i32 {
    let strained = employment == Employment::Unemployed || income < 18_000.0;
    let log = -1.15 - 0.85 * prudence + if strained { 0.5 } else { 0.0 };
    dice.count(log.exp(), 24)
}

impl Loan {
    fn draw(person: &Person, money: &Money, dice: &mut Dice) -> Loan {
        let purpose = purpose(person.employment, money.debt, dice);
        let amount = amount(purpose, money, dice);
        // Half-years: around one year for the smallest loans, four for the usual, eight for large ones.
        let half_years = 1.5 + 0.06 * amount.sqrt() + 1.8 * dice.normal();
        Loan { amount, term_months: 6 * (half_years as i32).clamp(1, 20), purpose }
    }
}

fn purpose(employment: Employment, debt: f64, dice: &mut Dice) -> Purpose {
    let weights = match (employment, debt > 12_000.0) {
        (Employment::SelfEmployed, _) => [0.20, 0.14, 0.14, 0.34, 0.02, 0.06, 0.10],
        (Employment::Student, _) => [0.15, 0.02, 0.06, 0.02, 0.55, 0.06, 0.14],
        (_, true) => [0.20, 0.16, 0.38, 0.03, 0.04, 0.08, 0.11],
        _ => [0.32, 0.25, 0.08, 0.03, 0.07, 0.10, 0.15],
    };
    Purpose::at(dice.pick(&weights))
}

/// Skewed: many small loans, few large ones; people who earn more borrow more.
fn amount(purpose: Purpose, money: &Money, dice: &mut Dice) -> f64 {
    let usual = match purpose {
        Purpose::Car => 17_000.0,
        Purpose::HomeImprovement => 19_000.0,
        Purpose::DebtConsolidation => 4_000.0 + money.debt,
        Purpose::Business => 26_000.0,
        Purpose::Education => 9_000.0,
        Purpose::Medical => 6_000.0,
        Purpose::Other => 7_000.0,
    };
    let means = (money.income / 35_000.0).sqrt();
    rounded(usual * means * (0.5 * dice.normal()).exp(), 100.0, 500.0, 250_000.0)
}

/// Between the two ends, in whole units: nobody asks for 10,234.17. Values are positive, so that a cast
/// rounds, and it is one instruction where `round` is a call.
fn rounded(value: f64, unit: f64, least: f64, most: f64) -> f64 {
    ((value / unit + 0.5) as i64 as f64 * unit).clamp(least, most)
}
