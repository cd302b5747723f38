# zsh -f complete.zsh FOLDER LINE: prints what zsh completes at the end of LINE, with the functions in FOLDER.
# Completion works in an interactive shell only, so one is started on a pseudo-terminal. It prints each match
# that it would offer instead of offering it.
zmodload zsh/zpty
zpty shell zsh -f -i

setup="
PROMPT= PROMPT_EOL_MARK=
fpath=(${(q)1} \$fpath)
autoload -Uz compinit && compinit -u -d ${(q)1}/dump
zstyle ':completion:*' list-prompt ''
zstyle ':completion:*' verbose no
unsetopt zle_bracketed_paste 2>/dev/null; unset zle_bracketed_paste
compadd() {
    # Calls that fill an array offer nothing.
    if [[ \${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then builtin compadd \"\$@\"; return; fi
    local -a offered
    builtin compadd -O offered \"\$@\"
    local match
    for match in \$offered; do print -r -- \"match<\$match>\"; done
}
done_completing() { print -r -- 'the''end'; exit }
comppostfuncs=(done_completing)
bindkey '^I' complete-word
print -r -- re''ady
"
print -r -- $setup >$1/setup.zsh
zpty -w shell "source ${(q)1}/setup.zsh"
zpty -r -m shell output '*ready*'
zpty -w -n shell "$2"$'\t'
output=
while zpty -r shell part; do
    output+=$part
    if [[ $output == *theend* ]]; then break; fi
done
print -r -- $output | tr -d '\r' | sed -n 's/.*match<\(.*\)>$/\1/p'
zpty -d shell
