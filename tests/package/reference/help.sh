# Sourced by the tests of the manual pages and completions: what `rowlock --help` says, with which they are
# compared, and the checks that all shells have in common.
# shellcheck shell=bash
set -euo pipefail
export LC_ALL=C.UTF-8
tool=$1
folder=$2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
failures=0

# section TITLE COMMAND…: that section of its --help.
section() { "$tool" "${@:2}" --help | awk -v title="$1:" '/^[^ ]/ { inside = 0 } inside; $0 == title { inside = 1 }'; }
commands_of() { section Subcommands "$@" | sed -nE 's/^  ([a-z][a-z-]*)( .*)?$/\1/p'; }
options_of() { section Options "$@" | sed -nE 's/^  ((-[a-z],)?--[a-z-]+)( .*)?$/\1/p' | tr , '\n'; }

# all_commands: a line for each, such as "semaphore set".
all_commands() {
    local command each
    for command in $(commands_of); do
        echo "$command"
        for each in $(commands_of "$command"); do echo "$command $each"; done
    done
}

# same WHAT EXPECTED ACTUAL: the same words, in any order.
same() {
    local expected actual
    expected=$(tr -s '[:space:]' '\n' <<<"$2" | sort -u) actual=$(tr -s '[:space:]' '\n' <<<"$3" | sort -u)
    if [[ $expected == "$actual" ]]; then return; fi
    printf '%s: expected - and got +\n' "$1"
    diff <(echo "$expected") <(echo "$actual") | sed -n 's/^</  -/p; s/^>/  +/p'
    failures=$((failures + 1))
}

# check_completion: `completions LINE` prints what the shell completes at the end of LINE.
check_completion() {
    local command
    same 'the commands' "$(commands_of)" "$(completions 'rowlock ')"
    same 'commands by their first letters' 'release renew' "$(completions 'rowlock re' | sed /reap/d)"
    while read -r command; do
        # Options of a group are accepted behind its commands, too.
        local expected
        expected=$(options_of $command)
        if [[ $command == *' '* ]]; then expected+=" $(options_of "${command%% *}")"; fi
        same "the options of $command" "$expected" "$(completions "rowlock $command -")"
    done < <(all_commands)
    same 'the commands of a group' "$(commands_of semaphore)" "$(completions 'rowlock semaphore ')"
    same 'a value from a list' 'on off drop' "$(completions 'rowlock migrate --history ')"
    same 'a value that starts' 'semaphore shared_mutex' "$(completions 'rowlock break --kind s')"
    same 'an argument from a list' 'init status readmit restart' "$(completions 'rowlock quorum ')"
    same 'a duration' '' "$(completions 'rowlock run --wait ')"
    # The tool is not in PATH, and no database is asked for names.
    same 'the name of a lock' '' "$(completions 'rowlock show nigh')"
    same 'the command under the lock' 'dirname' "$(completions 'rowlock run -n nightly -- dirnam')"
    same 'its options are not those of rowlock' '' \
        "$(completions 'rowlock run -n nightly -- dirname --no' | sed -n '/^--no\(te\|-wait\)/p')"
    if ((failures)); then
        echo "$failures failed"
        exit 1
    fi
    echo "completes $(all_commands | wc -l) commands as they are"
}
