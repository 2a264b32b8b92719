//! A thread's Lua states, and what it has compiled in them.
//!
//! **Invariant:** what is compiled belongs to the state it was compiled in: a state that is thrown
//! away (flush, spoilt by lack of memory) takes all of it along.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use commands::context::{Context, Host};
use foldhash::fast::RandomState;
use resp::Writer;

use crate::libraries::Library;
use crate::raw::library::{self, Registered};
use crate::raw::run::{Failure, Job, compile, run_job};
use crate::raw::state::{Kind, Vm};
use crate::run::Run;
use crate::scripts::{Digest, Script, Scripts};
use crate::shebang::{self, Flags};
use commands::sha1::{digest, from_hex};

/// What one thread's Lua states may take unless `lua-memory-limit` says otherwise, in bytes.
pub const MEMORY_LIMIT_BYTES: usize = 256 << 20;
/// Compiled scripts that nobody knows any more are cleared away when there are so many more than
/// known ones.
const STALE_MAX: usize = 600;

/// A compiled script that is about to run.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    /// Where its function is.
    pub reference: i32,
    /// What its first line says.
    pub flags: Flags,
    /// Its digest as text.
    pub hex: [u8; 40],
}

/// A compiled script.
#[derive(Clone)]
pub struct Compiled {
    /// The script.
    pub script: Arc<Script>,
    /// Where its function is.
    pub reference: i32,
}

/// The state of EVAL and its like.
struct ScriptEngine {
    vm: Vm,
    by_body: HashMap<Vec<u8>, Compiled, RandomState>,
    by_digest: HashMap<Digest, Compiled, RandomState>,
    /// The one that was last asked for by its digest, as the client wrote that.
    last: Option<([u8; 40], Compiled)>,
    generation: u64,
}

/// The state of functions.
struct FunctionEngine {
    vm: Vm,
    /// Each library that has been loaded here, with where its functions are.
    loaded: Vec<(Arc<Library>, Vec<i32>)>,
    /// Functions that have been called here, by the names they were called by.
    called: HashMap<Vec<u8>, Callable, RandomState>,
    generation: u64,
}

/// A function that can be called.
#[derive(Clone)]
pub struct Callable {
    /// Where it is.
    pub reference: i32,
    /// What it does.
    pub flags: Flags,
    /// Its name.
    pub name: Arc<str>,
}

/// See the module.
#[derive(Default)]
pub struct Engines {
    /// Whose they are: a thread of tests may serve several servers in turn.
    owner: usize,
    scripts: Option<ScriptEngine>,
    functions: Option<FunctionEngine>,
    memory: [usize; 2],
    /// Takes the replies of a script's commands; lent to each run.
    spare: Writer,
}

thread_local! {
    static ENGINES: Cell<Option<Box<Engines>>> = const { Cell::new(None) };
}

/// Why a script or function cannot be called.
#[derive(Debug, PartialEq, Eq)]
pub enum NoCode {
    /// There is no such script.
    Unknown,
    /// It does not compile, or its first line is wrong.
    Wrong(String),
}

/// There is no memory for a Lua state.
fn no_state() -> NoCode {
    NoCode::Wrong("not enough memory for a Lua state".into())
}

/// Does something with this thread's states for the server that has `scripts`.
pub fn with<T>(scripts: &Scripts, act: impl FnOnce(&mut Engines) -> T) -> T {
    let owner = std::ptr::from_ref(scripts).addr();
    let mut engines = ENGINES.take().unwrap_or_default();
    if engines.owner != owner {
        *engines = Engines { owner, ..Engines::default() };
    }
    let result = act(&mut engines);
    engines.clear_up(scripts);
    ENGINES.set(Some(engines));
    result
}

impl Engines {
    /// Throws away what has become unusable and tells how much memory is in use.
    #[inline]
    fn clear_up(&mut self, scripts: &Scripts) {
        if self.scripts.as_ref().is_some_and(|engine| engine.vm.is_spoilt()) {
            self.scripts = None;
        }
        if self.functions.as_ref().is_some_and(|engine| engine.vm.is_spoilt()) {
            self.functions = None;
        }
        let used = [
            self.scripts.as_ref().map_or(0, |engine| engine.vm.used_memory()),
            self.functions.as_ref().map_or(0, |engine| engine.vm.used_memory()),
        ];
        for (index, used) in used.into_iter().enumerate() {
            let before = self.memory[index];
            // The sum over all threads is for INFO: it need not be exact to the byte.
            if used.abs_diff(before) > 4096 {
                scripts.memory[index].fetch_add(used.wrapping_sub(before), Ordering::Relaxed);
                self.memory[index] = used;
            }
        }
    }

    /// What takes the replies of a script's commands.
    pub fn spare(&mut self) -> &mut Writer {
        &mut self.spare
    }

    fn script_engine(&mut self, scripts: &Scripts) -> Result<&mut ScriptEngine, NoCode> {
        let generation = scripts.generation.load(Ordering::Acquire);
        if self.scripts.as_ref().is_some_and(|engine| engine.generation != generation) {
            self.scripts = None;
        }
        if self.scripts.is_none() {
            let vm = Vm::new(Kind::Scripts, MEMORY_LIMIT_BYTES).ok_or_else(no_state)?;
            let (by_body, by_digest) = Default::default();
            let last = None;
            self.scripts = Some(ScriptEngine { vm, by_body, by_digest, last, generation });
        }
        self.scripts.as_mut().ok_or_else(no_state)
    }

    /// The compiled script with this source.
    pub fn by_body(
        &mut self,
        scripts: &Scripts,
        body: &[u8],
        now_ms: i64,
    ) -> Result<Found, NoCode> {
        let engine = self.script_engine(scripts)?;
        if let Some(compiled) = engine.by_body.get(body)
            && compiled.script.is_known.load(Ordering::Relaxed)
        {
            return Ok(compiled.found(now_ms));
        }
        let digest = digest(body);
        if let Some(script) = scripts.get(&digest) {
            return engine.compile(digest, script).map(|it| it.found(now_ms));
        }
        let (flags, code) = shebang::of_script(body).map_err(NoCode::Wrong)?;
        let reference = engine.compile_code(code)?;
        let script = scripts.add(digest, body, flags, now_ms);
        Ok(engine.keep(digest, script, reference).found(now_ms))
    }

    /// The compiled script with this digest, as text.
    pub fn by_hex(&mut self, scripts: &Scripts, hex: &[u8], now_ms: i64) -> Result<Found, NoCode> {
        let engine = self.script_engine(scripts)?;
        if let Some((last, compiled)) = &engine.last
            && last == hex
            && compiled.script.is_known.load(Ordering::Relaxed)
        {
            return Ok(compiled.found(now_ms));
        }
        let hex: [u8; 40] = hex.try_into().map_err(|_| NoCode::Unknown)?;
        let digest = from_hex(&hex).ok_or(NoCode::Unknown)?;
        let known = engine.by_digest.get(&digest).cloned();
        let compiled = match known.filter(|it| it.script.is_known.load(Ordering::Relaxed)) {
            Some(compiled) => compiled,
            None => engine.compile(digest, scripts.get(&digest).ok_or(NoCode::Unknown)?)?,
        };
        let found = compiled.found(now_ms);
        engine.last = Some((hex, compiled));
        Ok(found)
    }

    /// Runs a compiled script.
    pub fn run_script(
        &mut self,
        run: &mut Run<'_, '_>,
        job: &Job<'_>,
        limit: usize,
    ) -> Result<(), Failure> {
        let engine = self.scripts.as_mut().expect("the script was compiled in it");
        engine.vm.set_limit(limit);
        run_job(&mut engine.vm, run, job)
    }

    // Functions.

    fn function_engine(&mut self, scripts: &Scripts) -> Result<&mut FunctionEngine, NoCode> {
        if self.functions.is_none() {
            let vm = Vm::new(Kind::Functions, MEMORY_LIMIT_BYTES).ok_or_else(no_state)?;
            let (loaded, called) = Default::default();
            self.functions = Some(FunctionEngine { vm, loaded, called, generation: 0 });
        }
        let engine = self.functions.as_mut().ok_or_else(no_state)?;
        let generation = scripts.libraries.generation.load(Ordering::Acquire);
        if engine.generation != generation {
            engine.generation = generation;
            engine.called.clear();
            engine.forget_stale(scripts);
        }
        Ok(engine)
    }

    /// Runs the code of a library that is to be added: its functions, as it registers them.
    pub fn load(
        &mut self,
        scripts: &Scripts,
        code: &[u8],
        host: &mut dyn Host,
    ) -> Result<Vec<Registered>, String> {
        let engine = self.function_engine(scripts).map_err(|_| "not enough memory".to_string())?;
        library::load(&mut engine.vm, code, host)
    }

    /// Takes over what [`Engines::load`] gave, for a library that has been added.
    pub fn keep(&mut self, library: &Arc<Library>, references: Vec<i32>) {
        if let Some(engine) = &mut self.functions {
            engine.loaded.push((Arc::clone(library), references));
        }
    }

    /// Gives up what [`Engines::load`] gave.
    pub fn forget(&mut self, references: &[i32]) {
        if let Some(engine) = &mut self.functions {
            references.iter().for_each(|reference| engine.vm.forget(*reference));
        }
    }

    /// The function of this name, its library loaded if it has to be.
    pub fn callable(
        &mut self,
        cx: &mut Context<'_>,
        scripts: &Scripts,
        name: &[u8],
    ) -> Result<Callable, NoCode> {
        let engine = self.function_engine(scripts)?;
        if let Some(callable) = engine.called.get(name) {
            return Ok(callable.clone());
        }
        let (library, number) = scripts.libraries.function(name).ok_or(NoCode::Unknown)?;
        let reference = self.function(cx, scripts, &library, number)?;
        let function = &library.functions[number];
        // Names are letters, digits and underscores.
        let text = std::str::from_utf8(&function.name).unwrap_or_default();
        let callable = Callable { reference, flags: function.flags, name: text.into() };
        if let Some(engine) = &mut self.functions {
            engine.called.insert(name.to_vec(), callable.clone());
        }
        Ok(callable)
    }

    /// Where the function with this number in its library is, loaded if it has to be.
    fn function(
        &mut self,
        cx: &mut Context<'_>,
        scripts: &Scripts,
        library: &Arc<Library>,
        number: usize,
    ) -> Result<i32, NoCode> {
        let engine = self.function_engine(scripts)?;
        let known = engine.loaded.iter().find(|(other, _)| Arc::ptr_eq(other, library));
        if let Some((_, references)) = known {
            return references.get(number).copied().ok_or(NoCode::Unknown);
        }
        let code = shebang::of_library(&library.code).map_err(NoCode::Wrong)?.code;
        let registered = library::load(&mut engine.vm, code, cx.host).map_err(NoCode::Wrong)?;
        let place = |name: &Vec<u8>| registered.iter().find(|function| function.name == *name);
        let references =
            library.functions.iter().map(|it| place(&it.name).map_or(0, |found| found.reference));
        let references: Vec<i32> = references.collect();
        let reference = references.get(number).copied().filter(|reference| *reference != 0);
        engine.loaded.push((Arc::clone(library), references));
        reference.ok_or(NoCode::Unknown)
    }

    /// Runs a function.
    pub fn run_function(
        &mut self,
        run: &mut Run<'_, '_>,
        job: &Job<'_>,
        limit: usize,
    ) -> Result<(), Failure> {
        let engine = self.functions.as_mut().expect("the function was loaded in it");
        engine.vm.set_limit(limit);
        run_job(&mut engine.vm, run, job)
    }
}

impl Compiled {
    /// Notes that it is used now.
    fn found(&self, now_ms: i64) -> Found {
        let script = &*self.script;
        if script.used_ms.load(Ordering::Relaxed) != now_ms {
            script.used_ms.store(now_ms, Ordering::Relaxed);
        }
        let mut hex = [0; 40];
        hex.copy_from_slice(script.hex.as_bytes());
        Found { reference: self.reference, flags: script.flags, hex }
    }
}

impl ScriptEngine {
    fn compile_code(&mut self, code: &[u8]) -> Result<i32, NoCode> {
        let wrong =
            |text: String| NoCode::Wrong(format!("Error compiling script (new function): {text}"));
        compile(&mut self.vm, code, c"@user_script").map_err(wrong)
    }

    fn compile(&mut self, digest: Digest, script: Arc<Script>) -> Result<Compiled, NoCode> {
        if let Some(compiled) = self.by_digest.get(&digest)
            && Arc::ptr_eq(&compiled.script, &script)
        {
            let compiled = compiled.clone();
            self.by_body.insert(script.body.clone(), compiled.clone());
            return Ok(compiled);
        }
        let code = shebang::of_script(&script.body).map_err(NoCode::Wrong)?.1;
        let reference = self.compile_code(code)?;
        Ok(self.keep(digest, script, reference))
    }

    fn keep(&mut self, digest: Digest, script: Arc<Script>, reference: i32) -> Compiled {
        self.forget_stale();
        let compiled = Compiled { script: Arc::clone(&script), reference };
        self.by_body.insert(script.body.clone(), compiled.clone());
        self.by_digest.insert(digest, compiled.clone());
        compiled
    }

    fn forget_stale(&mut self) {
        let is_stale = |it: &Compiled| !it.script.is_known.load(Ordering::Relaxed);
        if self.by_digest.len() < STALE_MAX
            || self.by_digest.values().filter(|it| is_stale(it)).count() < STALE_MAX / 4
        {
            return;
        }
        let stale = self.by_digest.values().filter(|it| is_stale(it)).map(|it| it.reference);
        let stale: Vec<i32> = stale.collect();
        stale.into_iter().for_each(|reference| self.vm.forget(reference));
        self.by_digest.retain(|_, it| !is_stale(it));
        self.by_body.retain(|_, it| !is_stale(it));
    }
}

impl FunctionEngine {
    /// Gives up the functions of libraries that have been deleted or replaced.
    fn forget_stale(&mut self, scripts: &Scripts) {
        let vm = &mut self.vm;
        self.loaded.retain(|(library, references)| {
            let is_known = scripts.libraries.has(library);
            if !is_known {
                references.iter().filter(|it| **it != 0).for_each(|it| vm.forget(*it));
            }
            is_known
        });
    }
}
