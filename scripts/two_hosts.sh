#!/usr/bin/env bash
# Two hosts on one machine: runs a command beside two network namespaces that are joined by a pair of virtual network cards.
#
#   scripts/two_hosts.sh RATE COMMAND...         RATE: as tc spells it, such as 1gbit
#
# For the command are set: HOSTS, the namespaces are ${HOSTS}a and ${HOSTS}b; HOST_CARD, the card of each; HOST_A and
# HOST_B, their addresses; HOST_MPIRUN, a program that starts two ranks of Open MPI 4, one on each, over TCP alone.
# Needs root, and the programs ip, tc, unshare and mpirun; otherwise, and where namespaces are not allowed, it prints why
# and exits with 77. Nothing outside the namespaces is changed, and they are removed at the end.
set -euo pipefail
[ $# -ge 2 ] || { echo "two_hosts.sh: got $# words, expected RATE COMMAND..." >&2; exit 2; }
rate=$1
shift

skip() { echo "skipped: $*"; exit 77; }
[ "$(id -u)" = 0 ] || skip "needs root for network namespaces"
for tool in ip tc unshare mpirun; do
  command -v "$tool" > /dev/null || skip "$tool is not installed"
done

scratch=$(mktemp -d)
export HOSTS=bitgrad$$ HOST_CARD=wire HOST_A=10.77.0.1 HOST_B=10.77.0.2 HOST_MPIRUN=$scratch/mpirun
clean() {
  for side in a b; do
    # shellcheck disable=SC2046 # a list
    kill -9 $(ip netns pids "$HOSTS$side" 2> /dev/null) 2> /dev/null || true
    ip netns del "$HOSTS$side" 2> /dev/null || true
  done
  rm -rf "$scratch"
}
trap clean EXIT
trap 'exit 130' INT TERM

make_hosts() {
  ip netns add "${HOSTS}a" && ip netns add "${HOSTS}b" &&
    ip link add "$HOST_CARD" netns "${HOSTS}a" type veth peer name "$HOST_CARD" netns "${HOSTS}b" || return
  ip -n "${HOSTS}a" address add "$HOST_A/24" dev "$HOST_CARD" && ip -n "${HOSTS}b" address add "$HOST_B/24" dev "$HOST_CARD" || return
  for side in a b; do
    ip -n "$HOSTS$side" link set lo up && ip -n "$HOSTS$side" link set "$HOST_CARD" up || return
  done
}
make_hosts 2> "$scratch/error" || skip "no network namespaces here: $(tail -1 "$scratch/error")"
for side in a b; do
  tc -n "$HOSTS$side" qdisc replace dev "$HOST_CARD" root tbf rate "$rate" burst 1mb latency 50ms 2> "$scratch/error" ||
    skip "tc limits no rate here: $(tail -1 "$scratch/error")"
done

# mpirun starts the rank of the other host by this in place of ssh. A host name for each, so that they are two hosts.
cat > "$scratch/start" << EOF
#!/bin/sh
shift
exec ip netns exec ${HOSTS}b unshare --uts sh -c 'hostname "\$0" && exec sh -c "\$1"' rank1 "\$*"
EOF
cat > "$HOST_MPIRUN" << EOF
#!/bin/sh
exec ip netns exec ${HOSTS}a unshare --uts sh -c 'hostname rank0 && exec "\$@"' sh \\
  env TMPDIR=$scratch OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl=tcp,self OMPI_MCA_pml=ob1 \\
  OMPI_MCA_btl_tcp_if_include=$HOST_CARD OMPI_MCA_oob_tcp_if_include=$HOST_CARD \\
  OMPI_MCA_plm=rsh OMPI_MCA_plm_rsh_agent=$scratch/start \\
  mpirun --host $HOST_A:1,$HOST_B:1 -np 2 --map-by node --bind-to none "\$@"
EOF
chmod +x "$scratch/start" "$HOST_MPIRUN"
"$@"
