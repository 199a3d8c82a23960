--- omnipilot: asks omnipilotd at sbatch what becomes of a batch job that starts a vLLM server.
--
-- In: the settings given to setup() and, per submission, what slurmctld's job_submit/lua hands
-- over. Out: the return code for slurmctld, after the job was left alone, explained, rewritten or
-- refused. Called by job_submit.lua, which loads this file once. slurmctld holds its locks
-- meanwhile, and up to Slurm 25.11 it keeps what was written before an error: so nothing here
-- throws, waits past the deadline, or writes before the whole answer was checked. The protocol is
-- docs/protocol.md, the language the common subset of Lua 5.1 to 5.4.

local byte, char, find, format, gmatch =
  string.byte, string.char, string.find, string.format, string.gmatch
local gsub, lower, match, sub, upper =
  string.gsub, string.lower, string.match, string.sub, string.upper
local concat, floor, max, min = table.concat, math.floor, math.max, math.min

local M = {}
local settings, net, state -- set by setup(), kept as long as slurmctld keeps job_submit.lua loaded

-- Limits (of docs/protocol.md, of Slurm, and our own) and return codes --------------------------

local REQUEST_MAX_BYTES, ANSWER_MAX_BYTES, SCRIPT_MAX_BYTES = 262144, 65536, 65536
local MESSAGES_MAX, MESSAGE_MAX_BYTES, EDITS_MAX, TEXT_MAX_BYTES = 5, 300, 64, 1024
local ARGV_MAX, ENV_MAX, ENV_VALUE_MAX_BYTES = 1000, 32, 4096
local WORDS_MAX, LOOKUPS_MAX = 2000, 256 -- words of a script looked at, variables looked up
local ADMIN_COMMENT_MAX_BYTES = 16384 -- Slurm 22.05 took 20000
local JSON_MAX_DEPTH = 32
local UNSET, UNSET_SHORT = 4294967294, 65534 -- from these on Slurm means "not set" or "infinite"
local FAILURES_MAX, BACKOFF_MIN_S, BACKOFF_MAX_S, USERS_MAX = 3, 1, 60, 1024

-- sbatch prints an errno's own text after our lines. ESLURM_INVALID_GRES ("Invalid generic
-- resource (gres) specification") names what a refusal is about, the GPUs asked for, and does not
-- suggest to wait; 2014 ("Requested node configuration is not available") does, and ERROR says
-- "Unspecified error". 2015 ("Requested partition configuration not available now") suits a missing
-- answer: waiting helps. Slurm 22.05 gives Lua neither name, so their numbers stand here.
local CODES = {
  SUCCESS = 0,
  ESLURM_INVALID_GRES = 2072,
  ESLURM_REQUESTED_PART_CONFIG_UNAVAILABLE = 2015,
}

-- The words of a text as a list that is a set as well.
local function words_of(text)
  local list = {}
  for word in gmatch(text, "%S+") do
    list[#list + 1], list[word] = word, true
  end
  return list
end

local function code(name)
  local known = type(slurm) == "table" and slurm[name]
  return type(known) == "number" and known or CODES[name]
end

-- Log: single lines tagged "omnipilot:"; a log that fails never fails a submission --------------

local function log(level, ...)
  local parts, n = { ... }, select("#", ...)
  pcall(function()
    for i = 1, n do parts[i] = tostring(parts[i]) end
    local line = gsub(concat(parts), "[%z\1-\31\127]", " ")
    slurm["log_" .. level]("%s", "omnipilot: " .. sub(line, 1, 400))
  end)
end

-- Settings --------------------------------------------------------------------------------------

local DEFAULTS = {
  socket = "/run/omnipilot/omnipilotd.sock",
  deadline_ms = 50, -- for connect, send and receive together: so long may slurmctld be held up
  ping_ms = 20, -- for the ping that tells a hung daemon from a script that is slow to read
  patterns = { "vllm", "#OMNIPILOT" }, -- plain texts in any case; a script without them is not sent
  kill_file = "/etc/slurm/omnipilot.off", -- while it exists every job passes unasked
  exempt_root = true,
  exempt_users = {}, -- names or uids
  fail_closed = {}, -- partitions: without an answer, a job that only these may run is refused
  instruction_budget = 2000000, -- Lua instructions per submission
  library = "any", -- or "luasocket" or "lua-posix"
}
local MUST_BE = {
  string = "a text", number = "a number from 1 up", boolean = "true or false",
  table = "a table of texts or numbers",
}

-- A table setting as a set: both { "a" } and { a = true } hold "a". Nil when it is neither.
local function as_set(given)
  local set = {}
  for key, element in pairs(given) do
    if type(element) == "boolean" then
      set[key] = element
    elseif type(key) == "number" and (type(element) == "string" or type(element) == "number") then
      set[element] = true
    else
      return nil
    end
  end
  return set
end

-- The setting to use for what was given, or nil when that is of another type than the default.
local function checked_setting(given, default)
  if type(given) ~= type(default) then return nil end
  if type(given) == "table" then return as_set(given) end
  if type(given) == "number" and not (given >= 1 and given < 1e10) then return nil end
  return given
end

local function checked_settings(given)
  local checked = {}
  for name, default in pairs(DEFAULTS) do checked[name] = checked_setting(default, default) end
  for name, value in pairs(given or {}) do
    local default = DEFAULTS[name]
    local used = checked_setting(value, default)
    if default == nil then
      log("error", "setting ", name, " is not known; ignored")
    elseif used == nil then
      local must_be = MUST_BE[type(default)]
      log("error", "setting ", name, " must be ", must_be, ", was ", value, "; the default is used")
    else
      checked[name] = used
    end
  end
  return checked
end

-- JSON out: only what JSON requires is escaped, so bytes that are not UTF-8 travel unchanged ----

local ESCAPES = { ['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t" }
for i = 0, 31 do ESCAPES[char(i)] = ESCAPES[char(i)] or format("\\u%04x", i) end

local function quoted(text) return '"' .. gsub(text, '[%z\1-\31"\\]', ESCAPES) .. '"' end

local function member(key, json) return '"' .. key .. '":' .. json end

local function object(members) return "{" .. concat(members, ",") .. "}" end

local function array(elements) return "[" .. concat(elements, ",") .. "]" end

-- JSON in: strict, of bounded depth; arrays have the metatable ARRAY, null is NULL --------------

local ARRAY, NULL = {}, setmetatable({}, { __tostring = function() return "null" end })
local LITERALS = {
  ["true"] = true, ["false"] = false, ["null"] = NULL,
  -- not JSON, but Python writes and reads them, and AdminComment holds what others wrote
  ["NaN"] = 0 / 0, ["Infinity"] = 1 / 0, ["-Infinity"] = -1 / 0,
}
local UNESCAPES = {
  ['"'] = '"', ["\\"] = "\\", ["/"] = "/", b = "\b", f = "\f", n = "\n", r = "\r", t = "\t",
}
local NOT_JSON, NOT_OURS = "not JSON", "JSON that this reader does not take"

local read_value -- calls itself through read_array and read_object, JSON_MAX_DEPTH deep at most

local function skip_space(text, at) return find(text, "[^ \t\r\n]", at) or #text + 1 end

local function utf8_bytes(point)
  local low = 0x80 + point % 64
  if point < 0x80 then return char(point) end
  if point < 0x800 then return char(0xC0 + floor(point / 64), low) end
  local middle = 0x80 + floor(point / 64) % 64
  if point < 0x10000 then return char(0xE0 + floor(point / 4096), middle, low) end
  return char(0xF0 + floor(point / 262144), 0x80 + floor(point / 4096) % 64, middle, low)
end

-- A lone \udc80..\udcff stands for a byte that is not UTF-8 (Python's surrogateescape).
local function read_escape(text, at)
  local plain = UNESCAPES[sub(text, at, at)]
  if plain then return plain, at + 1 end
  local hex = match(text, "^u(%x%x%x%x)", at) or error(NOT_JSON, 0)
  local point = tonumber(hex, 16)
  if point < 0xD800 or point > 0xDFFF then return utf8_bytes(point), at + 5 end
  local second = point < 0xDC00 and match(text, "^\\u([dD][c-fC-F]%x%x)", at + 5)
  if second then
    local above = (point - 0xD800) * 0x400 + tonumber(second, 16) - 0xDC00
    return utf8_bytes(0x10000 + above), at + 11
  end
  if point < 0xDC80 or point > 0xDCFF then error(NOT_OURS, 0) end
  return char(point - 0xDC00), at + 5
end

local function read_string(text, at)
  local parts, from = {}, at + 1
  while true do -- each round moves on in the text; its end is an error
    local stop = find(text, '[%z\1-\31"\\]', from) or error(NOT_JSON, 0)
    parts[#parts + 1] = sub(text, from, stop - 1)
    local found = byte(text, stop)
    if found == 34 then return concat(parts), stop + 1 end
    if found ~= 92 then error(NOT_JSON, 0) end
    parts[#parts + 1], from = read_escape(text, stop + 1)
  end
end

local function read_number(text, at)
  local whole = match(text, "^%-?%d+", at)
  if not whole or find(whole, "^%-?0%d") then error(NOT_JSON, 0) end
  local number = whole .. (match(text, "^%.%d+", at + #whole) or "")
  number = number .. (match(text, "^[eE][+-]?%d+", at + #number) or "")
  return tonumber(number), at + #number
end

-- Reads `one, one, ...` up to the closing mark; read_one returns where it stopped.
local function read_sequence(text, at, closing, read_one)
  at = skip_space(text, at + 1)
  if sub(text, at, at) == closing then return at + 1 end
  repeat
    at = skip_space(text, read_one(skip_space(text, at)))
    local mark = sub(text, at, at)
    if mark ~= "," and mark ~= closing then error(NOT_JSON, 0) end
    at = at + 1
  until mark == closing
  return at
end

local function read_array(text, at, depth)
  local list = setmetatable({}, ARRAY)
  return list, read_sequence(text, at, "]", function(from)
    list[#list + 1], from = read_value(text, from, depth)
    return from
  end)
end

local function read_object(text, at, depth)
  local map = {}
  return map, read_sequence(text, at, "}", function(from)
    if byte(text, from) ~= 34 then error(NOT_JSON, 0) end
    local key, after = read_string(text, from)
    local colon = skip_space(text, after)
    if sub(text, colon, colon) ~= ":" then error(NOT_JSON, 0) end
    map[key], from = read_value(text, colon + 1, depth)
    return from
  end)
end

function read_value(text, at, depth)
  at = skip_space(text, at)
  local first = sub(text, at, at)
  if first == '"' then return read_string(text, at) end
  if first == "{" or first == "[" then
    if depth >= JSON_MAX_DEPTH then error(NOT_OURS, 0) end
    return (first == "{" and read_object or read_array)(text, at, depth + 1)
  end
  local word = match(text, "^%-?%a+", at)
  if not word then return read_number(text, at) end
  if LITERALS[word] == nil then error(NOT_JSON, 0) end
  return LITERALS[word], at + #word
end

-- The value of a whole text; or nil, and why not.
local function decoded(text)
  local ok, value, after = pcall(read_value, text, 1, 0)
  if not ok then return nil, value end
  if skip_space(text, after) <= #text then return nil, NOT_JSON end
  return value
end

local function is_array(value) return type(value) == "table" and getmetatable(value) == ARRAY end

local function is_object(value) return type(value) == "table" and getmetatable(value) == nil end

-- Socket libraries: connect, send, receive, each waiting at most left() seconds -----------------

local function monotonic()
  local time = require("posix.time")
  return function()
    local now = time.clock_gettime(time.CLOCK_MONOTONIC)
    return now.tv_sec + now.tv_nsec / 1e9
  end
end

local function luasocket()
  local socket, unix = require("socket"), require("socket.unix")
  local new = type(unix) == "table" and (unix.stream or unix.tcp) or unix -- 3.0; before it
  local has_monotonic, now = pcall(monotonic)
  local function wait_at_most(sock, seconds)
    sock:settimeout(seconds, "t") -- the whole call, by the clock on the wall
    sock:settimeout(seconds, "b") -- each wait in it, should that clock jump back
  end
  local lib = { now = has_monotonic and now or socket.gettime }
  function lib.connect(path, left)
    local sock = new()
    wait_at_most(sock, left())
    local ok, why = sock:connect(path)
    if ok then return sock end
    sock:close()
    return nil, why, why == "timeout"
  end
  function lib.send(sock, text, left)
    wait_at_most(sock, left())
    return sock:send(text)
  end
  function lib.receive(sock, left)
    wait_at_most(sock, left())
    local first, why = sock:receive(1)
    if not first then return nil, why end
    wait_at_most(sock, 0)
    local all, _, partial = sock:receive(ANSWER_MAX_BYTES) -- what is there comes as the partial
    return first .. (all or partial)
  end
  function lib.close(sock) sock:close() end
  return lib
end

local function lua_posix()
  local sys, fcntl = require("posix.sys.socket"), require("posix.fcntl")
  local poll, close = require("posix.poll").poll, require("posix.unistd").close
  local EAGAIN = require("posix.errno").EAGAIN
  local function wait(fd, event, left)
    return poll({ [fd] = { events = { [event] = true } } }, floor(left() * 1000)) == 1
  end
  local lib = { now = monotonic(), close = close }
  function lib.connect(path)
    local fd, why = sys.socket(sys.AF_UNIX, sys.SOCK_STREAM, 0)
    if not fd then return nil, why end
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.O_NONBLOCK)
    local ok, refusal, errno = sys.connect(fd, { family = sys.AF_UNIX, path = path })
    if ok then return fd end
    close(fd)
    return nil, refusal, errno == EAGAIN -- EAGAIN: the queue of a hung daemon is full
  end
  function lib.send(fd, text, left)
    repeat -- each round sends something, or waits until left() is 0
      local n_sent, why, errno = sys.send(fd, text)
      if not n_sent and errno ~= EAGAIN then return nil, why end
      if not n_sent and not wait(fd, "OUT", left) then return nil, "timeout" end
      text = sub(text, (n_sent or 0) + 1)
    until text == ""
    return true
  end
  function lib.receive(fd, left)
    if not wait(fd, "IN", left) then return nil, "timeout" end
    local text, why = sys.recv(fd, ANSWER_MAX_BYTES)
    if text == "" then return nil, "closed" end
    return text, why
  end
  return lib
end

-- Debian's and Enterprise Linux's, should slurmctld's Lua look elsewhere.
local function add_distribution_folders()
  local version = match(_VERSION, "%d+%.%d+")
  local share = ";/usr/share/lua/" .. version
  package.path = package.path .. share .. "/?.lua" .. share .. "/?/init.lua"
  for _, lib in ipairs({ "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "lib64", "lib" }) do
    package.cpath = package.cpath .. ";/usr/" .. lib .. "/lua/" .. version .. "/?.so"
  end
end

-- The first library that loads (lua-posix is the faster of the two), or nil.
local function socket_library(wanted)
  add_distribution_folders()
  local why
  for _, name in ipairs({ "lua-posix", "luasocket" }) do
    if wanted == "any" or wanted == name then
      local ok, found = pcall(name == "lua-posix" and lua_posix or luasocket)
      if ok then return found end
      why = found
    end
  end
  log("error", "no socket library, so no job is asked about: ", why)
end

-- One line out, one line back -------------------------------------------------------------------

-- A function that tells the seconds left; a clock that jumps back ends the span.
local function timer(seconds)
  local last = net.now()
  local stop = last + seconds
  return function()
    local now = net.now()
    if now < last then stop = now end
    last = now
    return max(0, stop - now)
  end
end

local function talk(conn, line, left)
  local ok, why = net.send(conn, line, left)
  if not ok then return nil, why end
  local chunks, n_bytes = {}, 0
  while left() > 0 do -- each round receives something, or waits until left() is 0
    local chunk, fault = net.receive(conn, left)
    if not chunk then return nil, fault end
    chunks[#chunks + 1], n_bytes = chunk, n_bytes + #chunk
    if n_bytes > ANSWER_MAX_BYTES then return nil, "answer too long" end
    local stop = find(chunk, "\n", 1, true)
    if stop == #chunk then return concat(chunks) end
    if stop then return nil, "more than one line" end
  end
  return nil, "timeout"
end

-- The answer; or nil, why not, and whether nobody listens (nothing was sent then).
local function exchange(line, left)
  local conn, why, is_busy = net.connect(settings.socket, left)
  if not conn then return nil, why, not is_busy end
  local ok, answer, why_not = pcall(talk, conn, line, left)
  net.close(conn)
  if not ok then return nil, answer end
  return answer, why_not
end

-- Breaker: nobody listening opens it. A request without a good answer may be its script's fault:
-- three make us ping before the next, and only a ping that fails, or several users, open it ------

local function fresh_state()
  return {
    n_refused = 0, -- connections refused in a row
    n_suspect = 0, -- requests without a good answer in a row
    suspect = nil, has_several = false, -- whose they were
    users = {}, -- [uid % USERS_MAX] = {uid, strikes, backoff_s, retry_at}
    backoff_s = 0, -- back to 0 only when a request was answered: a ping is not enough
    retry_at = nil, -- set while the breaker is open
    is_off = false, -- the kill file was there
  }
end

local function longer(backoff_s) return min(max(backoff_s * 2, BACKOFF_MIN_S), BACKOFF_MAX_S) end

-- Whether a backoff still runs; a clock that jumped back ends it.
local function is_waiting(who)
  local wait = who.retry_at and who.retry_at - net.now() or 0
  return wait > 0 and wait <= who.backoff_s
end

local function clear_suspicion()
  state.n_refused, state.n_suspect, state.suspect, state.has_several = 0, 0, nil, false
end

local function open_breaker(why)
  state.backoff_s = longer(state.backoff_s)
  local level = state.retry_at and "debug" or "error"
  log(level, "no answer (", why, "); jobs pass unasked for ", state.backoff_s, " s")
  state.retry_at = net.now() + state.backoff_s
  state.users = {} -- it was the daemon, not they
  clear_suspicion()
end

local function user_of(uid)
  local user = state.users[uid % USERS_MAX]
  return user and user.uid == uid and user
end

local function note_answer(uid)
  clear_suspicion()
  state.backoff_s = 0
  if user_of(uid) then state.users[uid % USERS_MAX] = nil end
end

local function note_refused(why)
  state.n_refused = state.n_refused + 1
  log("error", "nobody listens at ", settings.socket, ": ", why)
  if state.n_refused >= FAILURES_MAX then open_breaker(why) end
end

local function note_suspicion(uid, why)
  local user = user_of(uid) or { uid = uid, strikes = 0, backoff_s = 0 }
  state.users[uid % USERS_MAX] = user
  user.strikes = user.strikes + 1
  if user.strikes >= FAILURES_MAX then
    user.backoff_s = longer(user.backoff_s)
    user.retry_at = net.now() + user.backoff_s
  end
  log("error", "no good answer for uid ", format("%.0f", uid), ": ", why)
  state.has_several = state.has_several or (state.suspect ~= nil and state.suspect ~= uid)
  state.n_refused, state.n_suspect, state.suspect = 0, state.n_suspect + 1, uid
  if state.n_suspect >= FAILURES_MAX and state.has_several then open_breaker(why) end
end

local function answers_ping(left)
  local line = exchange('{"v":1,"op":"ping"}\n', timer(min(left(), settings.ping_ms / 1000)))
  local answer = line and decoded(line)
  return is_object(answer) and answer.v == 1
end

-- Whether the daemon may be asked for this user now.
local function may_ask(uid, left)
  if is_waiting(state) then return false end
  if state.retry_at or state.n_suspect >= FAILURES_MAX then
    if not answers_ping(left) then
      open_breaker("a ping failed")
      return false
    end
    if state.retry_at then log("info", "answered again; asking about jobs") end
    state.retry_at, state.n_suspect = nil, 0
  end
  local user = user_of(uid)
  return not (user and is_waiting(user))
end

-- Candidates: who is asked about at all ---------------------------------------------------------

local function is_candidate(script)
  if type(script) ~= "string" or #script > SCRIPT_MAX_BYTES then return false end
  local text = lower(script)
  for pattern in pairs(settings.patterns) do
    if find(text, lower(pattern), 1, true) then return true end
  end
  return false
end

local function is_component(job) -- of a heterogeneous job
  local offset = job.het_job_offset
  return type(offset) == "number" and offset < UNSET
end

local function is_exempt(job, uid)
  local owner, users = job.user_id, settings.exempt_users
  if settings.exempt_root and (uid == 0 or owner == 0) then return true end
  return next(users) ~= nil and (users[uid] or users[owner] or users[job.user_name or ""])
end

local function is_switched_off()
  local file, _, errno = io.open(settings.kill_file, "r")
  if file then file:close() end
  -- 2 and 20: no such file or folder. Another error may hide a file that we may not read.
  local is_off = file ~= nil or (errno ~= 2 and errno ~= 20)
  if is_off ~= state.is_off then
    log("info", is_off and "off, because of " or "on again, without ", settings.kill_file)
    state.is_off = is_off
  end
  return is_off
end

-- Request ---------------------------------------------------------------------------------------

local TEXT_FIELDS = words_of([[ partition account qos user_name name tres_per_node tres_per_job
  tres_per_task tres_per_socket cpus_per_tres mem_per_tres features reservation req_nodes exc_nodes
  array_inx comment ntasks_per_tres default_account default_qos ]])
local NUMBER_FIELDS = words_of([[ user_id group_id time_limit min_nodes max_nodes num_tasks min_cpus
  min_mem_per_node min_mem_per_cpu priority het_job_offset ]])
local SHORT_NUMBER_FIELDS = words_of([[ ntasks_per_node ntasks_per_gpu cpus_per_task pn_min_cpus
  shared ]])
local ENV_ALWAYS = words_of([[ SLURM_GPUS SLURM_GPUS_PER_NODE SLURM_GPUS_PER_SOCKET
  SLURM_GPUS_PER_TASK SLURM_GPUS_ON_NODE SLURM_TRES_PER_TASK SLURM_MEM_PER_GPU SLURM_CPUS_PER_GPU
  SLURM_NTASKS SLURM_NTASKS_PER_NODE SLURM_NTASKS_PER_CORE SLURM_NTASKS_PER_GPU
  SLURM_NTASKS_PER_SOCKET SLURM_NTASKS_PER_TRES ]])
local PRIVATE = words_of("KEY TOKEN SECRET PASS CREDENTIAL")

local function job_members(job)
  local members = {}
  for _, name in ipairs(TEXT_FIELDS) do
    local value = job[name]
    if type(value) == "string" and value ~= "" then
      members[#members + 1] = member(name, quoted(value))
    end
  end
  local function add_numbers(wanted, unset)
    for _, name in ipairs(wanted) do
      local value = job[name]
      if type(value) == "number" and value >= 0 and value < unset then
        members[#members + 1] = member(name, format("%.0f", value))
      end
    end
  end
  add_numbers(NUMBER_FIELDS, UNSET)
  add_numbers(SHORT_NUMBER_FIELDS, UNSET_SHORT)
  return members
end

local function is_private(name)
  for _, word in ipairs(PRIVATE) do
    if find(upper(name), word, 1, true) then return true end
  end
  return false
end

-- The words of a script that may name a variable: those after a $ first, then bare ones, in
-- capitals or, where there is arithmetic, in any case.
local function variable_names(script)
  local found, seen = {}, {}
  local bare = find(script, "((", 1, true) and "[%a_][%w_]*" or "[%u_][%w_]*"
  for _, pattern in ipairs({ "%$%{?[#!]?([%a_][%w_]*)", bare }) do
    local n_words = 0
    for name in gmatch(script, pattern) do
      n_words = n_words + 1
      if n_words > WORDS_MAX or #found >= LOOKUPS_MAX then break end
      if not seen[name] then
        seen[name], found[#found + 1] = true, name
      end
    end
  end
  return found
end

local function env_members(environment, script)
  local members, seen = {}, {}
  local function add(wanted, n_max)
    for _, name in ipairs(wanted) do
      if #members >= n_max then return end
      local value = not seen[name] and not is_private(name) and environment[name]
      seen[name] = true
      if type(value) == "string" and #value <= ENV_VALUE_MAX_BYTES then
        members[#members + 1] = member(name, quoted(value))
      end
    end
  end
  add(ENV_ALWAYS, #ENV_ALWAYS)
  add(variable_names(script), #members + ENV_MAX)
  return members
end

-- The request, or nil when it would be longer than the daemon takes.
local function request(job, script, part_list)
  local argv, partitions = {}, {}
  local argc = type(job.argc) == "number" and job.argc or 0
  if argc > ARGV_MAX then return nil end
  for i = 1, argc - 1 do argv[i] = quoted(job.argv[i]) end
  for name in pairs(part_list) do partitions[#partitions + 1] = quoted(name) end
  table.sort(partitions)
  local line = object({
    member("v", "1"), member("op", '"decide"'), member("script", quoted(script)),
    member("argv", array(argv)), member("env", object(env_members(job.environment, script))),
    member("partitions", array(partitions)), member("job", object(job_members(job))),
  }) .. "\n"
  return #line <= REQUEST_MAX_BYTES and line or nil
end

-- Answer: everything is checked here; each fault is an error, and then the job is left alone ----

local EDIT_KEYS = words_of("start end old new")
local VERDICTS = words_of("pass advise rewrite reject abstain")
local FIELD_FORMS = {
  partition = "^[^%c%s]+$", gres = "^[%w:_.,/=()+-]+$",
  tres_per_job = "^$", tres_per_task = "^$", tres_per_socket = "^$",
}

local function expect(condition, what) return condition or error("bad " .. what, 0) end

local function expect_keys(map, known, what)
  expect(is_object(map), what)
  for key in pairs(map) do expect(known[key], what .. ": unknown key " .. key) end
end

-- Text of at most max_bytes without control characters other than tab and newline.
local function is_clean(text, max_bytes)
  return type(text) == "string" and #text <= max_bytes
    and not find(text, "[%z\1-\8\11-\31\127]")
end

local function is_utf8(text)
  text = gsub(text, "[\194-\223][\128-\191]", "")
  text = gsub(text, "[\224-\239][\128-\191][\128-\191]", "")
  text = gsub(text, "[\240-\244][\128-\191][\128-\191][\128-\191]", "")
  return not find(text, "[\128-\255]")
end

local function expect_messages(messages, verdict)
  expect(is_array(messages) and #messages <= MESSAGES_MAX, "messages")
  expect(verdict ~= "reject" or #messages > 0, "messages: none for a refusal")
  for _, text in ipairs(messages) do
    expect(is_clean(text, MESSAGE_MAX_BYTES) and is_utf8(text), "message")
  end
end

local function expect_fields(fields, part_list)
  expect_keys(fields, FIELD_FORMS, "fields")
  for name, value in pairs(fields) do
    expect(is_clean(value, TEXT_MAX_BYTES) and find(value, FIELD_FORMS[name]), "field " .. name)
  end
  for name in gmatch(fields.partition or "", "[^,]+") do
    expect(part_list[name], "field partition: not one offered")
  end
end

local function expect_env(env, environment)
  expect(is_object(env), "env")
  for name, value in pairs(env) do
    expect(find(name, "^SLURM_GPUS[%u_]*$") or name == "SLURM_TRES_PER_TASK", "env name " .. name)
    expect(is_clean(value, TEXT_MAX_BYTES), "env value of " .. name)
    expect(type(environment[name]) == "string", "env: not set is " .. name)
  end
end

local function edited(script, edits)
  expect(is_array(edits) and #edits <= EDITS_MAX, "edits")
  local parts, at = {}, 0
  for _, edit in ipairs(edits) do
    expect_keys(edit, EDIT_KEYS, "edit")
    local from, to, old, new = edit.start, edit["end"], edit.old, edit.new
    expect(type(from) == "number" and from % 1 == 0 and from >= at, "edit start")
    expect(type(to) == "number" and to % 1 == 0 and to >= from and to <= #script, "edit end")
    expect(old == sub(script, from + 1, to), "edit: the script has another text there")
    expect(is_clean(new, TEXT_MAX_BYTES), "edit new")
    parts[#parts + 1], at = sub(script, at + 1, from) .. new, to
  end
  return concat(parts) .. sub(script, at + 1)
end

-- AdminComment: our tag beside what others keep there; JSON stays JSON --------------------------

local function with_tag(comment, id, verdict)
  local value = id .. ":" .. verdict
  local tag = "omnipilot=" .. value
  if comment == "" then return tag end
  if #comment > ADMIN_COMMENT_MAX_BYTES or find(comment, tag, 1, true) then return comment end
  local json, why = decoded(comment)
  local tagged = comment .. " " .. tag
  if is_object(json) or is_array(json) then
    local key = is_object(json) and json.omnipilot ~= nil and "omnipilot_" .. id or "omnipilot"
    if json.omnipilot == value or json[key] == value then return comment end
    local entry = is_array(json) and quoted(tag) or member(key, quoted(value))
    local head, closing = match(comment, "^(.*)([%]}]%s*)$")
    tagged = head .. (find(head, "^%s*[%[{]%s*$") and "" or ",") .. entry .. closing
  elseif json == nil and why ~= NOT_JSON then
    return comment -- it may be JSON, and a tag behind it would break it
  end
  return #tagged <= ADMIN_COMMENT_MAX_BYTES and tagged or comment
end

-- Plan: what an answer means for this job; carrying it out: all of it or nothing ----------------

-- The writes of a checked answer, each with what stands there now.
local function planned_writes(answer, job, script)
  local writes, environment, fields = {}, job.environment, answer.fields or {}
  local function plan(target, key, new, shown_as)
    local old = target[shown_as or key] or ""
    if new and new ~= old then
      shown_as = shown_as or key
      local write = { target = target, key = key, shown_as = shown_as, old = old, new = new }
      writes[#writes + 1] = write
    end
  end
  for _, name in ipairs({ "tres_per_job", "tres_per_task", "tres_per_socket" }) do
    plan(job, name, fields[name])
  end
  for name, value in pairs(answer.env or {}) do plan(environment, name, value) end
  if answer.edits then plan(job, "script", edited(script, answer.edits)) end
  plan(job, "partition", fields.partition)
  plan(job, "gres", fields.gres, "tres_per_node") -- where Slurm keeps it, with a prefix of its own
  if answer.tag then
    plan(job, "admin_comment", with_tag(job.admin_comment or "", answer.id, answer.verdict))
  end
  return writes
end

local function checked_plan(answer, job, script, part_list)
  expect(is_object(answer), "answer")
  local id, verdict = answer.id, answer.verdict
  expect(answer.v == 1, "v")
  expect(type(id) == "string" and #id <= 32 and find(id, "^[0-9a-z]+$"), "id")
  expect(VERDICTS[verdict], "verdict")
  expect(answer.tag == nil or answer.tag == "omnipilot=" .. id .. ":" .. verdict, "tag")
  expect_messages(answer.messages, verdict)
  expect_fields(answer.fields or {}, part_list)
  expect_env(answer.env or {}, job.environment)
  for _, name in ipairs({ "fields", "env", "edits" }) do
    expect(verdict == "rewrite" or next(answer[name] or {}) == nil, name .. " without a rewrite")
  end
  local writes = planned_writes(answer, job, script)
  return { id = id, verdict = verdict, messages = answer.messages, writes = writes }
end

local function is_written(write)
  local shown = write.target[write.shown_as] or ""
  if write.key ~= "gres" then return shown == write.new end
  return find(shown, match(write.new, "^[^,]*"), 1, true) ~= nil
end

local function write_all(writes)
  for _, write in ipairs(writes) do
    write.is_tried = true
    write.target[write.key] = write.new
  end
  for _, write in ipairs(writes) do -- a Slurm without one of the fields must not get half a rewrite
    if not is_written(write) then error("Slurm did not take " .. write.key, 0) end
  end
end

local function undo(writes)
  for i = #writes, 1, -1 do
    local write = writes[i]
    if write.is_tried then
      pcall(function() write.target[write.shown_as] = write.old end)
    end
  end
end

local function carry_out(plan)
  local ok, why = pcall(function()
    if plan.verdict ~= "reject" then write_all(plan.writes) end
    for _, text in ipairs(plan.messages) do slurm.log_user("%s", text) end
  end)
  if not ok then
    undo(plan.writes)
    error(why, 0)
  end
  local is_acting = plan.verdict == "rewrite" or plan.verdict == "reject"
  log(is_acting and "info" or "debug", plan.id, ":", plan.verdict)
  return code(plan.verdict == "reject" and "ESLURM_INVALID_GRES" or "SUCCESS")
end

-- No answer: the job passes, unless every partition it may run in is closed then ----------------

local function default_partition(part_list)
  for name, partition in pairs(part_list) do
    if partition.flag_default == 1 then return name end
  end
  return ""
end

local function is_closed(partitions)
  for name in gmatch(partitions, "[^,]+") do
    if not settings.fail_closed[name] then return false end
  end
  return find(partitions, "[^,]") ~= nil
end

local function without_answer(job, part_list)
  local partitions = job.partition or default_partition(part_list)
  if not is_closed(partitions) then return code("SUCCESS") end
  slurm.log_user("%s", "Job rejected: omnipilot does not answer, and partition " .. partitions
    .. " takes no such job without its answer. Please try again in a minute.")
  return code("ESLURM_REQUESTED_PART_CONFIG_UNAVAILABLE")
end

-- The way of one submission ---------------------------------------------------------------------

-- The plan for this job; or nil when there is no good answer, which the breaker is told.
local function ask(line, job, script, part_list, uid, left)
  local answer_line, why, nobody_listens = exchange(line, left)
  if nobody_listens then return note_refused(why) end
  local answer
  if answer_line then answer, why = decoded(answer_line) end
  if answer == nil then return note_suspicion(uid, why) end
  if is_object(answer) and answer.v == 1 and is_object(answer.error) then
    clear_suspicion()
    return log("error", "refused by omnipilotd: ", answer.error.code, ": ", answer.error.text)
  end
  local ok, plan = pcall(checked_plan, answer, job, script, part_list)
  if not ok then return note_suspicion(uid, plan) end
  note_answer(uid)
  return plan
end

local function consider(job, part_list, uid)
  local script = job.script
  if not is_candidate(script) or is_component(job) or is_exempt(job, uid) or is_switched_off() then
    return code("SUCCESS")
  end
  if not net then return without_answer(job, part_list) end
  local left = timer(settings.deadline_ms / 1000)
  if not may_ask(uid, left) then return without_answer(job, part_list) end
  local line = request(job, script, part_list)
  if not line then return code("SUCCESS") end
  local plan = ask(line, job, script, part_list, uid, left)
  return plan and carry_out(plan) or without_answer(job, part_list)
end

local function within_budget(work, ...)
  local hook, mask, count = debug.gethook()
  if hook ~= nil and type(hook) ~= "function" then return pcall(work, ...) end -- C's, to be kept
  local function stop() error("instruction budget used up", 0) end
  debug.sethook(stop, "", settings.instruction_budget)
  local ok, result = pcall(work, ...)
  debug.sethook(hook, mask, count)
  return ok, result
end

-- Never throws.
local function submit(job, part_list, uid)
  local ok, result = within_budget(consider, job, part_list, uid)
  if ok then return result end
  log("error", "fault, so the job is left alone: ", result)
  ok, result = pcall(without_answer, job, part_list)
  return ok and result or code("SUCCESS")
end

--- Take the settings (see DEFAULTS) and return the function to call for each submission.
function M.setup(given)
  settings, state = checked_settings(given), fresh_state()
  net = socket_library(settings.library)
  return submit
end

-- For the tests, which hold them against Python's json.
M.quoted, M.decoded, M.with_tag = quoted, decoded, with_tag

return M
