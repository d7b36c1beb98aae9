//! The host can be read from the top down, and `grep` finds what a name means.
//!
//! * No files import each other, on any way round: whoever reads one goes down, and never back. A file may name what the
//!   files above it define (`super::`): that is where it hangs.
//! * A type that other files can name has a name of its own.
//! * What decides that a Node goes is read at one sitting.
//!
//! What only tests import or define does not count.

#![allow(clippy::expect_used, reason = "a test that cannot read the checkout has failed")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use syn::{Attribute, File, Item, UseTree, Visibility, visit::Visit};

/// A module by its path below the crate, which is empty for the root.
type Module = Vec<String>;

#[derive(Default)]
struct Crate {
    files: BTreeMap<Module, File>,
    /// What a module hands on, by the name under which it does, and where that is defined.
    handed_on: BTreeMap<(Module, String), Vec<String>>,
}

impl Crate {
    fn read(folder: &Path) -> Self {
        let mut read = Self::default();
        read.file(&folder.join("src/lib.rs"), &folder.join("src"), Vec::new());
        let handed_on = read.files.iter().flat_map(|(module, file)| {
            let public = file.items.iter().filter_map(|item| match item {
                Item::Use(item) if !matches!(item.vis, Visibility::Inherited) => Some(&item.tree),
                _ => None,
            });
            let leaves = public.flat_map(|tree| leaves(tree, &[]));
            leaves.map(|(path, name)| ((module.clone(), name), absolute(module, &path)))
        });
        read.handed_on = handed_on.collect();
        read
    }

    /// Reads a module and all below it, as the compiler finds them.
    fn file(&mut self, file: &Path, below: &Path, module: Module) {
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        for item in &parsed.items {
            if let Item::Mod(child) = item
                && child.content.is_none()
                && !is_test(&child.attrs)
            {
                let name = child.ident.to_string();
                let path = [module.as_slice(), std::slice::from_ref(&name)].concat();
                self.file(&below.join(format!("{name}.rs")), &below.join(&name), path);
            }
        }
        self.files.insert(module, parsed);
    }

    /// The file that defines what a path from the root of the crate leads to.
    fn definer(&self, path: &[String]) -> Module {
        let known = (0..=path.len()).rev().find(|length| self.files.contains_key(&path[..*length]));
        let (module, rest) = path.split_at(known.unwrap_or(0));
        let handed_on = rest.first().and_then(|name| self.handed_on.get(&(module.to_vec(), name.clone())));
        match handed_on {
            Some(origin) if origin != path => {
                self.definer(&[origin.as_slice(), rest.get(1..).unwrap_or_default()].concat())
            }
            _ => module.to_vec(),
        }
    }

    /// The files that each file imports from, but for those above it.
    fn imports(&self) -> BTreeMap<&Module, BTreeSet<Module>> {
        let of_file = |module: &Module, file: &File| {
            let mut paths = Paths::default();
            paths.visit_file(file);
            let named = paths.0.iter().map(|path| self.definer(&absolute(module, path)));
            named.filter(|other| !module.starts_with(other)).collect()
        };
        self.files.iter().map(|(module, file)| (module, of_file(module, file))).collect()
    }
}

/// The paths that shipped code names, from the crate or from where it stands.
#[derive(Default)]
struct Paths(Vec<Vec<String>>);

impl<'ast> Visit<'ast> for Paths {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Mod(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            Item::Fn(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            _ => return syn::visit::visit_item(self, item),
        };
        if !is_test(attributes) {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.0.extend(leaves(&item.tree, &[]).into_iter().map(|(path, _)| path));
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.0.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        syn::visit::visit_path(self, path);
    }
}

/// Each path of a `use`, and the name that it gives.
fn leaves(tree: &UseTree, before: &[String]) -> Vec<(Vec<String>, String)> {
    let with = |name: String| [before, &[name]].concat();
    match tree {
        UseTree::Path(path) => leaves(&path.tree, &with(path.ident.to_string())),
        UseTree::Name(name) if name.ident == "self" => {
            vec![(before.to_vec(), before.last().cloned().unwrap_or_default())]
        }
        UseTree::Name(name) => vec![(with(name.ident.to_string()), name.ident.to_string())],
        UseTree::Rename(name) => vec![(with(name.ident.to_string()), name.rename.to_string())],
        UseTree::Group(group) => group.items.iter().flat_map(|tree| leaves(tree, before)).collect(),
        UseTree::Glob(_) => vec![(before.to_vec(), String::new())],
    }
}

/// From the root of the crate. What begins with another crate leads to no file of this one but the root, which is above all.
fn absolute(module: &[String], path: &[String]) -> Vec<String> {
    let ups = path.iter().take_while(|part| *part == "super").count();
    match path.first().map(String::as_str) {
        Some("crate") => path[1..].to_vec(),
        Some("super") => [&module[..module.len() - ups], &path[ups..]].concat(),
        Some("self") => [module, &path[1..]].concat(),
        _ => [module, path].concat(),
    }
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|one| one.path().is_ident("cfg")).any(|one| {
        let condition = one.meta.require_list().map(|list| list.tokens.to_string().replace(' ', ""));
        condition
            .is_ok_and(|condition| ["test", "any(test,feature=\"testing\")"].contains(&condition.as_str()))
    })
}

/// A way from the file back to itself.
fn circle(imports: &BTreeMap<&Module, BTreeSet<Module>>, from: &Module) -> Option<Vec<Module>> {
    let mut ways = vec![vec![from.clone()]];
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop() {
        for next in way.last().and_then(|last| imports.get(last)).into_iter().flatten() {
            if next == from {
                return Some(way);
            }
            if seen.insert(next.clone()) {
                ways.push([way.as_slice(), std::slice::from_ref(next)].concat());
            }
        }
    }
    None
}

/// The host's crates, by their folders.
fn crates() -> impl Iterator<Item = (&'static str, Crate)> {
    let names = ["", "base", "kube", "cloud", "reconcile", "nodes", "services", "volumes"];
    names.into_iter().map(|name| (name, Crate::read(&workspace_rules::root().join("ccm-host").join(name))))
}

#[test]
fn no_files_import_each_other() {
    let mut arrows = 0;
    let mut circles = Vec::new();
    for (name, read) in crates() {
        let imports = read.imports();
        arrows += imports.values().map(BTreeSet::len).sum::<usize>();
        let found = imports.keys().filter_map(|from| circle(&imports, from));
        circles.extend(found.map(|way| {
            let files: Vec<_> = way.iter().map(|module| module.join("/")).collect();
            format!("{name}: {}", files.join(" → "))
        }));
    }
    assert!(arrows > 200, "only {arrows} imports were found: are the crates elsewhere?");
    assert!(circles.is_empty(), "{circles:#?}");
}

/// What means the same wherever it stands: the flags of a part, what it counts, a controller, and what `decide` returns.
const SAME_EVERYWHERE: [&str; 5] = ["Settings", "Metrics", "Controller", "Plan", "Verdict"];

#[test]
fn a_name_stands_for_one_type() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, read) in crates() {
        for (module, file) in &read.files {
            for item in &file.items {
                let (visibility, ident) = match item {
                    Item::Struct(item) => (&item.vis, &item.ident),
                    Item::Enum(item) => (&item.vis, &item.ident),
                    Item::Trait(item) => (&item.vis, &item.ident),
                    _ => continue,
                };
                if !matches!(visibility, Visibility::Inherited) {
                    places.entry(ident.to_string()).or_default().push(format!("{name}/{}", module.join("/")));
                }
            }
        }
    }
    assert!(places.len() > 200, "only {} types were found: are the crates elsewhere?", places.len());
    places.retain(|name, places| places.len() > 1 && !SAME_EVERYWHERE.contains(&name.as_str()));
    assert!(places.is_empty(), "rename all but one of each: {places:#?}");
}

#[test]
fn the_deletion_of_a_node_is_decided_in_one_short_file() {
    let guard = "ccm-host/nodes/src/cloud_node_lifecycle/guard.rs";
    let text = fs::read_to_string(workspace_rules::root().join(guard)).expect("the guard");
    assert!(text.contains("fn holds_back("), "{guard} does not decide it any more");
    assert!(text.lines().count() <= 250, "{guard} has {} lines", text.lines().count());
}
