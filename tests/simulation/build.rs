//! Links `src/random.c` in place of the system's randomness.

fn main() {
    let mut build = cc::Build::new();
    build.file("src/random.c").warnings(true).link_lib_modifier("+whole-archive").compile("seeded_random");
    println!("cargo::rerun-if-changed=src/random.c");
}
