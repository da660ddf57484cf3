use crate::Account;
use parking_lot::Mutex;
use thalweg_record::{Budget, Lease};

/// Counts the memory of a pool on a memory budget. The memory is claimed and never refused, because the pool
/// has a limit of its own. The owner of both may lower that limit while the budget is short
/// ([`Pool::shrink_to`](crate::Pool::shrink_to)).
///
/// ```
/// use thalweg_record::Budget;
/// use thalweg_sparse::{BudgetAccount, Options, Pool, SparseFile};
///
/// let budget = Budget::new(64 << 20);
/// let pool = Pool::with_account(16 << 20, BudgetAccount::new(&budget));
/// let file = SparseFile::with_options("file", 0.0, Options { pool: Some(pool), ..Options::default() });
/// file.write(0, &[1; 1 << 20])?;
/// assert!(budget.used() >= 1 << 20);
/// drop(file);
/// assert_eq!(budget.used(), 0);
/// # Ok::<(), thalweg_sparse::Error>(())
/// ```
pub struct BudgetAccount {
    budget: Budget,
    held: Mutex<Lease>,
}

impl BudgetAccount {
    /// Creates an account of zero bytes.
    pub fn new(budget: &Budget) -> Self {
        Self { budget: budget.clone(), held: Mutex::new(budget.claim(0)) }
    }
}

impl Account for BudgetAccount {
    fn take(&self, bytes: usize) {
        // Both leases belong to one budget, so merging them cannot fail.
        let _ = self.held.lock().merge(self.budget.claim(bytes));
    }

    fn give_back(&self, bytes: usize) {
        drop(self.held.lock().split(bytes));
    }
}
