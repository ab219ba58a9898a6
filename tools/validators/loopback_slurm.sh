#!/bin/sh
# A Slurm cluster of two nodes on this machine's loopback, for tests: munge, slurmctld, two slurmd.
#   loopback_slurm.sh start FOLDER    writes FOLDER/env; source it to use sbatch and friends
#   loopback_slurm.sh stop FOLDER     ends exactly the processes that it started
# SLURM_NODE says what each node claims to have ("CPUs=128 RealMemory=2000000 Gres=gpu:8").
# Needs root and the packages slurm-wlm and munge.
set -eu
action=$1
mkdir -p "$2"
folder=$(cd "$2" && pwd)

start() {
  mkdir -p "$folder/state" "$folder/munge" "$folder/run"
  dd if=/dev/urandom of="$folder/munge/key" bs=1024 count=1 2>/dev/null
  chmod 600 "$folder/munge/key"
  munged --force --key-file="$folder/munge/key" --socket="$folder/munge/socket" \
    --pid-file="$folder/munge/pid" --log-file="$folder/munge/log" --seed-file="$folder/munge/seed"
  write_configuration > "$folder/slurm.conf"
  for device in 0 1 2 3 4 5 6 7; do : > "$folder/gpu$device"; done
  echo "Name=gpu File=$folder/gpu[0-7]" > "$folder/gres.conf"
  echo "export SLURM_CONF='$folder/slurm.conf'" > "$folder/env"
  export SLURM_CONF="$folder/slurm.conf"
  slurmctld -c -f "$folder/slurm.conf"
  # The nodes' names resolve for their tasks alone, as they do on a real cluster.
  { cat /etc/hosts; echo "127.0.0.1 node0 node1"; } > "$folder/hosts"
  for node in node0 node1; do
    unshare --mount sh -c 'mount --bind "$1/hosts" /etc/hosts && exec slurmd -N "$2" -f "$1/slurm.conf"' \
      sh "$folder" "$node"
  done
  for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    if [ "$(sinfo -h -t idle -o %D)" = 2 ]; then return; fi
    sleep 0.5
  done
  sinfo >&2
  echo "the nodes did not come up; see the logs in $folder" >&2
  exit 1
}

write_configuration() {
  memory_mib=$(($(awk '/^MemTotal/ {print $2}' /proc/meminfo) / 1024))
  node=${SLURM_NODE:-CPUs=$(nproc) RealMemory=$memory_mib}
  cat <<CONF
ClusterName=loopback
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=16817
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool-%n
SlurmctldPidFile=$folder/run/slurmctld.pid
SlurmdPidFile=$folder/run/slurmd-%n.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
MpiDefault=none
ReturnToService=2
SwitchType=switch/none
GresTypes=gpu
SlurmdParameters=config_overrides
PreemptType=preempt/none
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,requeue_delay=0
NodeName=node0 NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=17001 $node
NodeName=node1 NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=17002 $node
PartitionName=test Nodes=node0,node1 Default=YES MaxTime=UNLIMITED State=UP
CONF
}

stop() {
  for name in slurmd-node0 slurmd-node1 slurmctld; do
    if [ -f "$folder/run/$name.pid" ]; then kill "$(cat "$folder/run/$name.pid")" || true; fi
  done
  if [ -f "$folder/munge/pid" ]; then kill "$(cat "$folder/munge/pid")" || true; fi
}

"$action"
