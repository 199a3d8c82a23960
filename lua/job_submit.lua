-- An example job_submit.lua: merge it into your site's own, which stays yours.
-- Without omnipilot.lua, or with a broken one, slurmctld starts and every job passes.

local is_loaded, omnipilot_submit = pcall(function()
  local omnipilot = dofile("/etc/slurm/omnipilot.lua") -- once, so that its circuit breaker lives on
  return omnipilot.setup({
    socket = "/run/omnipilot/omnipilotd.sock",
    -- the other settings and their defaults stand at the head of omnipilot.lua
  })
end)
if not is_loaded then
  slurm.log_error("omnipilot: not loaded, jobs pass unasked: %s", tostring(omnipilot_submit))
end

function slurm_job_submit(job_desc, part_list, submit_uid)
  -- the site's own rules come first: return early with their code when they refuse the job
  if is_loaded then return omnipilot_submit(job_desc, part_list, submit_uid) end
  return slurm.SUCCESS
end

function slurm_job_modify() return slurm.SUCCESS end
