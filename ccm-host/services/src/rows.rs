//! The table of all rows, by uid and provider, and by name.
//!
//! In: keys of rows, and the moments at which calls and lists begin and end. Out: rows, and whether a call may begin
//! or a list may change one. What a change means is decided in [`super::row`].

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use parking_lot::Mutex;

use super::row::{Known, Row, RowKey};
use ccm_kube::service::ObjectKey;

/// All rows.
#[derive(Debug, Default)]
pub(super) struct Rows(Mutex<RowTable>);

#[derive(Debug, Default)]
struct RowTable {
    by_uid: HashMap<Arc<str>, BTreeMap<Arc<str>, Arc<Row>>>,
    /// The uids of a name's Services: more than one after a Service was recreated.
    by_name: HashMap<ObjectKey, Vec<Arc<str>>>,
    /// Counts beginnings and ends of calls.
    turn: u64,
    /// When rows were dropped, until a list of their provider ends that began later.
    dropped: HashMap<RowKey, u64>,
}

impl RowTable {
    /// A row, which is made if there is none.
    fn row(&mut self, at: &RowKey, key: &ObjectKey) -> &mut Row {
        let Self { by_uid, by_name, .. } = self;
        let rows = by_uid.entry(Arc::clone(&at.uid)).or_default();
        let row = rows.entry(Arc::clone(&at.provider)).or_insert_with(|| {
            // A list may show it under another name than its Service has.
            let uids = by_name.entry(key.clone()).or_default();
            if !uids.contains(&at.uid) {
                uids.push(Arc::clone(&at.uid));
            }
            Arc::new(Row::new(at.clone(), key.clone(), Known::Unsure))
        });
        Arc::make_mut(row)
    }

    fn remove(&mut self, at: &RowKey) {
        let Some(rows) = self.by_uid.get_mut(&at.uid) else { return };
        let Some(gone) = rows.remove(&at.provider) else { return };
        let is_named = rows.values().any(|row| row.key == gone.key);
        self.turn += 1;
        self.dropped.insert(at.clone(), self.turn);
        if rows.is_empty() {
            self.by_uid.remove(&at.uid);
        }
        if !is_named && let Some(uids) = self.by_name.get_mut(&gone.key) {
            uids.retain(|uid| *uid != at.uid);
            if uids.is_empty() {
                self.by_name.remove(&gone.key);
            }
        }
    }
}

/// A call that is under way; no other one for the same balancer begins meanwhile.
#[derive(Debug)]
pub(super) struct Busy<'a> {
    rows: &'a Rows,
    at: RowKey,
    makes: bool,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.rows.touch(&self.at, self.makes, false);
    }
}

impl Rows {
    /// The rows of a name: of the Service that has it now, and of former ones.
    pub(super) fn of(&self, key: &ObjectKey) -> Vec<Arc<Row>> {
        let table = self.0.lock();
        let uids = table.by_name.get(key).into_iter().flatten();
        uids.filter_map(|uid| table.by_uid.get(uid)).flat_map(BTreeMap::values).cloned().collect()
    }

    pub(super) fn get(&self, at: &RowKey) -> Option<Arc<Row>> {
        self.0.lock().by_uid.get(&at.uid)?.get(&at.provider).cloned()
    }

    /// Changes a row, which is made if there is none. `change` must be quick.
    pub(super) fn change<T>(&self, at: &RowKey, key: &ObjectKey, change: impl FnOnce(&mut Row) -> T) -> T {
        change(self.0.lock().row(at, key))
    }

    /// Changes a row that exists.
    pub(super) fn update<T>(&self, at: &RowKey, change: impl FnOnce(&mut Row) -> T) -> Option<T> {
        let mut table = self.0.lock();
        let row = table.by_uid.get_mut(&at.uid)?.get_mut(&at.provider)?;
        Some(change(Arc::make_mut(row)))
    }

    /// Begins a call, which may make the balancer; `None` while another one is under way.
    pub(super) fn begin(&self, at: &RowKey, makes: bool) -> Option<Busy<'_>> {
        self.touch(at, makes, true).then(|| Busy { rows: self, at: at.clone(), makes })
    }

    /// Whether there is a row which was not so before.
    fn touch(&self, at: &RowKey, makes: bool, busy: bool) -> bool {
        let mut table = self.0.lock();
        table.turn += 1;
        let turn = table.turn;
        let Some(row) = table.by_uid.get_mut(&at.uid).and_then(|rows| rows.get_mut(&at.provider)) else {
            return false;
        };
        if row.busy == busy {
            return false;
        }
        let row = Arc::make_mut(row);
        row.touched = turn;
        if makes {
            row.made = turn;
        }
        row.busy = busy;
        if row.goes && !busy {
            table.remove(at);
        }
        true
    }

    /// The moment at which a list begins.
    pub(super) fn turn(&self) -> u64 {
        self.0.lock().turn
    }

    /// Changes a row as a list taken since that turn says, unless a call knows more. `None` if one does.
    pub(super) fn learn<T>(
        &self,
        at: &RowKey,
        key: &ObjectKey,
        since: u64,
        is_absence: bool,
        change: impl FnOnce(&mut Row) -> T,
    ) -> Option<T> {
        let mut table = self.0.lock();
        let knows_more = match table.by_uid.get(&at.uid).and_then(|rows| rows.get(&at.provider)) {
            Some(row) if is_absence => row.made > since || (row.busy && row.made == row.touched),
            Some(row) => row.busy || row.touched > since,
            None => table.dropped.get(at).is_some_and(|at| *at > since),
        };
        (!knows_more).then(|| change(table.row(at, key)))
    }

    /// A list of that provider has ended.
    pub(super) fn listed(&self, provider: &str) {
        self.0.lock().dropped.retain(|at, _| &*at.provider != provider);
    }

    /// Removes a row, unless a call about it is under way: a row made anew meanwhile would let a second one begin.
    pub(super) fn remove(&self, at: &RowKey) {
        let mut table = self.0.lock();
        let row = table.by_uid.get(&at.uid).and_then(|rows| rows.get(&at.provider));
        if row.is_some_and(|row| !row.busy) {
            table.remove(at);
        }
    }

    pub(super) fn all(&self) -> Vec<Arc<Row>> {
        self.0.lock().by_uid.values().flat_map(BTreeMap::values).cloned().collect()
    }

    /// Applies `change`, which must be quick, to every row.
    pub(super) fn for_each(&self, mut change: impl FnMut(&mut Row)) {
        for row in self.0.lock().by_uid.values_mut().flat_map(BTreeMap::values_mut) {
            change(Arc::make_mut(row));
        }
    }
}

#[cfg(test)]
mod tests;
