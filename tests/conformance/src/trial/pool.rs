//! Balancers and instances that a case leaves for later ones: a real cloud takes its time, and money, for each.
//!
//! In: what a case took or made. Out: the same for the next case if this one passed and it is still there; otherwise
//! nobody knows how it was left, and it goes when the case ends.

/// Things of one kind, each with its numbers in the ledger.
#[derive(Debug)]
pub(crate) struct Pool<T> {
    free: Vec<(Vec<u64>, T)>,
    /// In the hands of the present case.
    taken: Vec<(Vec<u64>, T)>,
}

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self { free: Vec::new(), taken: Vec::new() }
    }
}

impl<T: Clone> Pool<T> {
    /// Whether nothing waits for the next that asks.
    pub(crate) fn is_empty(&self) -> bool {
        self.free.is_empty()
    }

    /// One that an earlier case left.
    pub(crate) fn take(&mut self) -> Option<T> {
        let one = self.free.pop()?;
        self.taken.push(one.clone());
        Some(one.1)
    }

    /// Takes in one for the next that asks.
    pub(crate) fn spare(&mut self, numbers: Vec<u64>, one: T) {
        self.free.push((numbers, one));
    }

    /// Takes in what the present case has made.
    pub(crate) fn add(&mut self, numbers: Vec<u64>, one: T) {
        self.taken.push((numbers, one));
    }

    /// The case has ended. Returns the numbers of what is to go: later cases get only what is of use to them.
    pub(crate) fn end_case(&mut self, is_of_use: impl Fn(&T) -> bool) -> Vec<u64> {
        let taken = std::mem::take(&mut self.taken).into_iter();
        let (kept, gone): (Vec<_>, Vec<_>) = taken.partition(|(_, one)| is_of_use(one));
        self.free.extend(kept);
        gone.into_iter().flat_map(|(numbers, _)| numbers).collect()
    }

    /// The numbers of what waits for the next case.
    pub(crate) fn kept(&self) -> impl Iterator<Item = u64> {
        self.free.iter().flat_map(|(numbers, _)| numbers).copied()
    }

    /// Empties it of what nobody has taken. Returns its numbers.
    pub(crate) fn drain(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.free).into_iter().flat_map(|(numbers, _)| numbers).collect()
    }
}
