-- The health of a CheckpointedWrite for Argo CD, as kstatus reads it. Into the ConfigMap argocd-cm, under the key
-- resource.customizations.health.checkpointed.dev_CheckpointedWrite
local health = {status = "Progressing", message = "no operator has reconciled it yet"}
local status = obj.status
if status == nil or status.observedGeneration ~= obj.metadata.generation then
  return health
end
health.message = status.message or status.activity or status.phase or ""
if obj.metadata.deletionTimestamp ~= nil then
  return health
end
local holds = {}
for _, condition in ipairs(status.conditions or {}) do
  holds[condition.type] = condition.status == "True"
end
if holds.Stalled then
  health.status = "Degraded"
elseif holds.Ready then
  health.status = "Healthy"
elseif status.phase == "Suspended" then
  health.status = "Suspended"
end
return health
