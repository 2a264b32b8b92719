//! Not written yet.
#[repr(transparent)]
#[derive(Clone)]
pub struct Zset(Box<u8>);
impl Default for Zset {
    fn default() -> Self {
        Zset(Box::new(0))
    }
}
impl Zset {
    pub fn is_empty(&self) -> bool {
        true
    }
    pub fn free_effort(&self) -> usize {
        0
    }
}
#[derive(Clone, Copy)]
pub struct ZsetLimits {
    pub listpack_entries: usize,
    pub listpack_value: usize,
}
