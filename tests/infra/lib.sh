# shellcheck shell=bash disable=SC2034
# Shared by the scripts of this folder (sourced, not run): cache folder, free ports, processes, bounded waits.

INFRA=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
REPO=$(cd "$INFRA/../.." && pwd)
CACHE=${VEILSTREAM_CACHE:-$REPO/target/infra}
JAVA_SMALL=(-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto -Djava.net.preferIPv4Stack=true)

die() { echo "${0##*/}: $*" >&2; exit 1; }

# need_java: Java 17 or newer, and Maven. Installs Debian's packages when missing.
need_java() {
  local major
  major=$(java -version 2>&1 | sed -nE '1s/.*version "([0-9]+).*/\1/p') || true
  if [[ ${major:-0} -lt 17 ]] || ! command -v mvn >/dev/null; then "$INFRA/debian" java >&2; fi
}

# fetch_once NAME POM COMMAND...: runs COMMAND once in the new folder that becomes $CACHE/NAME-<checksum of POM>;
# sets FETCHED to that folder. Safe when several scripts fetch at the same time.
fetch_once() {
  local name=$1 pom=$2 tmp; shift 2
  FETCHED=$CACHE/$name-$(cksum <"$pom" | cut -d' ' -f1)
  [[ -d $FETCHED ]] && return
  need_java
  mkdir -p "$CACHE"
  exec 8>"$CACHE/$name.lock"
  flock -w 600 8 || die "another fetch of $name holds $CACHE/$name.lock"
  if [[ ! -d $FETCHED ]]; then
    # Ours alone under the lock; what an interrupted fetch left there goes first.
    tmp=$CACHE/$name.part
    rm -rf "$tmp" && mkdir "$tmp"
    (cd "$tmp" && "$@") || { rm -rf "$tmp"; die "could not fetch $name"; }
    mv "$tmp" "$FETCHED"
  fi
  exec 8>&-
}

# maven POM ARGS...: Maven without chatter, three tries (registries do hiccup).
maven() {
  local pom=$1 try; shift
  for try in 1 2 3; do
    mvn -q -B -Dstyle.color=never -f "$pom" "$@" >&2 && return
    echo "mvn failed (try $try of 3)" >&2
  done
  return 1
}

# show NAME VALUE: one line for the shell to evaluate; quoted only where it must be, so that other programs can split at =.
show() { if [[ $2 =~ ^[A-Za-z0-9_.,:/@-]*$ ]]; then echo "$1=$2"; else printf '%s=%q\n' "$1" "$2"; fi; }

port_used() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# free_ports: prints the first port of a block of 24 that nobody listens on. It lies below the range the kernel hands
# out to clients, and starts from this process's id, so that scripts running at the same time look at different blocks.
free_ports() {
  local slot try base p
  for ((try = 0; try < 850; try++)); do
    slot=$((($$ + try * 7) % 850)) base=$((11000 + slot * 24))
    for ((p = base; p < base + 24; p++)); do if port_used $p; then continue 2; fi; done
    echo $base
    return
  done
  die "no free block of ports"
}

# wait_for SECONDS COMMAND...: true as soon as COMMAND is, false after SECONDS.
wait_for() {
  local end=$((SECONDS + $1)); shift
  until "$@"; do
    ((SECONDS < end)) || return 1
    sleep 0.1
  done
}

# alive PIDFILE MARK: is the process of that file running, and is it ours (MARK occurs in its command line)?
alive() {
  local pid
  pid=$(cat "$1" 2>/dev/null) && [[ -n $pid && -r /proc/$pid/cmdline ]] &&
    tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF -- "$2"
}
gone() { ! alive "$@"; }

# end SIGNAL PIDFILE MARK: signals the process and waits until it is gone.
end() {
  if alive "$2" "$3"; then
    kill "-$1" "$(cat "$2")" 2>/dev/null || true
    wait_for 60 gone "$2" "$3" || die "process $(cat "$2") did not end within 60 s of SIG$1"
  fi
  rm -f "$2"
}

# daemon LOG PIDFILE COMMAND...: starts COMMAND in a session of its own, with none of our file descriptors.
daemon() {
  local log=$1 pidfile=$2; shift 2
  setsid "$@" </dev/null >>"$log" 2>&1 8>&- 9>&- &
  echo $! >"$pidfile"
}
