#!/bin/sh
# An sshd in namespaces of its own (network, processes, mounts, host name), for tests: another machine.
#   second_namespace.sh start FOLDER    FOLDER/config is the client's; the host is called `far`
#   second_namespace.sh stop FOLDER     ends it and takes the network down
# Its home is its own, so what lies there came over ssh. Needs root, openssh-server, iproute2.
set -eu
action=$1
mkdir -p "$2"
folder=$(cd "$2" && pwd)
namespace=paceline-far
near=10.211.99.1
far=10.211.99.2

start() {
  for key in id host; do ssh-keygen -q -t ed25519 -N "" -f "$folder/$key"; done
  write_server_configuration > "$folder/sshd_config"
  write_client_configuration > "$folder/config"
  mkdir -p /run/sshd
  ip netns add "$namespace"
  ip link add paceline-near type veth peer name eth0 netns "$namespace"
  ip addr add "$near/30" dev paceline-near
  ip link set paceline-near up
  ip -n "$namespace" addr add "$far/30" dev eth0
  ip -n "$namespace" link set eth0 up
  ip -n "$namespace" link set lo up
  mkdir -p "$folder/home"
  awk -F: -v OFS=: -v home="$folder/home" '$1 == "root" { $6 = home } { print }' /etc/passwd \
    > "$folder/passwd"
  ip netns exec "$namespace" unshare --mount --pid --fork --kill-child --mount-proc --uts sh -c \
    'mount --bind "$1/passwd" /etc/passwd && hostname far && exec /usr/sbin/sshd -D -f "$1/sshd_config"' \
    sh "$folder" > "$folder/log" 2>&1 &
  echo $! > "$folder/pid"
  for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    if [ "$(ssh -F "$folder/config" far hostname 2>>"$folder/log")" = far ]; then return; fi
    sleep 0.5
  done
  cat "$folder/log" >&2
  exit 1
}

write_server_configuration() {
  cat <<CONF
ListenAddress $far
HostKey $folder/host
StrictModes no
UsePAM no
PidFile none
AuthorizedKeysFile $folder/id.pub
CONF
}

write_client_configuration() {
  cat <<CONF
Host far
  HostName $far
  IdentityFile $folder/id
  StrictHostKeyChecking no
  UserKnownHostsFile $folder/known
CONF
}

stop() {
  if [ -f "$folder/pid" ]; then kill "$(cat "$folder/pid")" || true; fi
  ip link del paceline-near || true
  ip netns del "$namespace" || true
}

"$action"
