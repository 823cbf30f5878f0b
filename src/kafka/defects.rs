//! The defects of this folder that the negative controls of `tests/kafka/faults.py` ask for, in one place.
//!
//! A control shows that the oracle sees a broken promise. Without the `failpoints` feature every function here is constantly
//! false, and the compiler removes the branch.

use crate::failpoint::defect;

/// `forgetful`: a new assignment does not learn which records earlier releases show. I3 turns red.
pub(super) fn forgets_earlier_releases() -> bool {
    defect("forgetful")
}

/// `offsets-outside`: offsets are committed outside the transaction. I1 turns red after a crash.
pub(super) fn commits_outside_the_transaction() -> bool {
    defect("offsets-outside")
}
