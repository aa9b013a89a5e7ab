//! The categorical columns' values.

/// An enumeration whose members are the values of a column, written in snake case.
macro_rules! category {
    ($(#[$doc:meta])* $name:ident { $($member:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum $name { $($member),+ }

        impl $name {
            /// The values as text, in the order of the members.
            pub(super) const TEXTS: &'static [&'static str] = &[$($text),+];
            const ALL: &'static [$name] = &[$($name::$member),+];

            /// The member at a position.
            pub(super) fn at(position: usize) -> Self {
                Self::ALL[position]
            }
        }
    };
}

category!(
    /// Protected; no part of the approval rule.
    Sex { Female = "female", Male = "male" }
);

category!(
    /// Protected; no part of the approval rule, but incomes differ between regions.
    Region {
        Capital = "capital",
        North = "north",
        South = "south",
        East = "east",
        West = "west",
    }
);

category!(
    /// Highest degree.
    Education {
        Primary = "primary",
        Secondary = "secondary",
        Bachelor = "bachelor",
        Postgraduate = "postgraduate",
    }
);

category!(
    /// Where the income comes from.
    Employment {
        Employed = "employed",
        PublicSector = "public_sector",
        SelfEmployed = "self_employed",
        Unemployed = "unemployed",
        Retired = "retired",
        Student = "student",
    }
);

category!(
    /// No part of the approval rule.
    MaritalStatus {
        Single = "single",
        Married = "married",
        Divorced = "divorced",
        Widowed = "widowed",
    }
);

category!(
    /// Where the applicant lives.
    Housing { Own = "own", Mortgage = "mortgage", Rent = "rent", WithFamily = "with_family" }
);

category!(
    /// What the loan is for.
    Purpose {
        Car = "car",
        HomeImprovement = "home_improvement",
        DebtConsolidation = "debt_consolidation",
        Business = "business",
        Education = "education",
        Medical = "medical",
        Other = "other",
    }
);

category!(
    /// The label.
    Decision { Approved = "approved", Rejected = "rejected" }
);
