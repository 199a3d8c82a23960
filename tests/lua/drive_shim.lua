-- Submits jobs through lua/omnipilot.lua with the socket library that this machine has.
-- usage: drive_shim.lua MODULE LIBRARY SOCKET DEADLINE_MS N_SUBMISSIONS SCRIPT_BYTES FILLER_BYTE
-- Prints a line per event.
local module, library, socket, deadline_ms = arg[1], arg[2], arg[3], tonumber(arg[4])
local n_submissions, script_bytes, filler = tonumber(arg[5]), tonumber(arg[6]), tonumber(arg[7])

local function printer(event)
  return function(...) print(event .. " " .. string.format(...)) end
end

slurm = {
  SUCCESS = 0, log_user = printer("told"), log_error = printer("log"), log_info = printer("log"),
  log_debug = function() end,
}
local submit = dofile(module).setup({
  socket = socket, library = library, exempt_root = false,
  deadline_ms = deadline_ms, ping_ms = deadline_ms,
})
local head = "#!/bin/sh\nvllm serve m\n#"
local script = head .. string.rep(string.char(filler), script_bytes - #head)
for _ = 1, n_submissions do
  local job = { script = script, user_id = 1000, argc = 1, argv = {}, environment = {} }
  local code = submit(job, { a100 = { flag_default = 1 } }, 1000)
  print("code " .. code .. (job.script == script and " unchanged" or " rewritten"))
end
