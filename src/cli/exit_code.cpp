#include "cli/exit_code.hpp"

#include "base/server_words.hpp"

#include <cstring>

namespace rowlock::cli {

std::string exit_code_help() {
    return "Exit codes:\n"
           "  0        done; `run` passes on the exit code of its command\n"
           "  1        the answer is no: not held, not by that grant, no such lock, not confirmed, "
           "a\n"
           "           check failed, a deadlock\n"
           "  64       wrong usage: options, names, durations, URLs; another --limit than the "
           "stored\n"
           "  69       the database cannot be reached or did not answer in time\n"
           "  70       the lease was lost while the command ran; the command was stopped\n"
           "  71       the operating system refused something (processes, memory, terminal)\n"
           "  74       the output could not be written\n"
           "  75       busy: another holds the lock (--busy-exit-code changes it)\n"
           "  76       the database refused for another reason\n"
           "  77       access denied, or the database does not accept writes\n"
           "  78       the set-up is wrong: no database given, tables missing or of another "
           "version,\n"
           "           URL file, driver\n"
           "  126      the command of `run` cannot be executed\n"
           "  127      the command of `run` was not found\n"
           "  128+n    ended by signal n, `rowlock` or the command it ran\n";
}

const char* kind_of(int code) noexcept {
    switch (code) {
        case answer_is_no:
            return "no";
        case usage:
            return "usage";
        case unreachable:
            return "unreachable";
        case lease_lost:
            return "lease_lost";
        case output_failed:
            return "output_failed";
        case busy:
            return "busy";
        case refused:
            return "refused";
        case no_permission:
            return "no_permission";
        case misconfigured:
            return "misconfigured";
        case not_executable:
            return "not_executable";
        case not_found:
            return "not_found";
        default:
            return code > signal_base ? "signal" : "system";
    }
}

failure busy_failure(const std::string& name, int code, const std::string& holder) {
    return {code,
            name + " is held by another" +
                (holder.empty() ? "; `rowlock show` shows the holder" : ": " + holder),
            kind_of(busy)};
}

int exit_code_of(errc kind) noexcept {
    switch (kind) {
        case errc::invalid_name:
        case errc::invalid_options:
        case errc::invalid_url:
            return usage;
        case errc::database_unreachable:
        case errc::timed_out:
        case errc::out_of_resources:
        case errc::outcome_unknown:
            return unreachable;
        case errc::lock_lost:
            return lease_lost;
        case errc::access_denied:
        case errc::read_only:
            return no_permission;
        case errc::schema_outdated:
        case errc::unsupported:
            return misconfigured;
        default:
            return refused;
    }
}

std::string message_of(const error& failure) {
    return base::with_server_words(failure);
}

failure system_call_failed(const std::string& what, int error_number) {
    return {system_failure, what + ": " + std::strerror(error_number)};
}

}  // namespace rowlock::cli
