//! Not written yet.
#[repr(transparent)]
#[derive(Clone)]
pub struct Hash(Box<u8>);
impl Default for Hash {
    fn default() -> Self {
        Hash(Box::new(0))
    }
}
impl Hash {
    pub fn is_empty(&self) -> bool {
        true
    }
    pub fn free_effort(&self) -> usize {
        0
    }
}
#[derive(Clone, Copy)]
pub struct HashLimits {
    pub listpack_entries: usize,
    pub listpack_value: usize,
}
