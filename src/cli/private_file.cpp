#include "cli/private_file.hpp"

#include "cli/descriptor.hpp"
#include "cli/exit_code.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace rowlock::cli {
namespace {

std::string text_of(const named_file& what) {
    return what.path + ", which " + what.named + ",";
}

failure unreadable(const named_file& what, int error) {
    return {misconfigured,
            "the file that " + what.named + " cannot be read: " + std::strerror(error)};
}

/// The file may hold passwords, so only its owner may read it; root may lend it to a group.
void require_private(int file, const named_file& what) {
    struct stat found {};
    if (fstat(file, &found) != 0) throw system_call_failed("fstat", errno);
    if (found.st_uid != geteuid() && found.st_uid != 0) {
        throw failure{misconfigured, text_of(what) + " belongs to another user"};
    }
    const mode_t refused = found.st_uid == 0 && geteuid() != 0 ? 0037 : 0077;
    if ((found.st_mode & refused) == 0) return;
    throw failure{misconfigured,
                  text_of(what) + " can be read or written by other users: chmod 600 " + what.path};
}

}  // namespace

std::vector<std::string> read_private_lines(const named_file& what, lines_wanted wanted) {
    const descriptor file{::open(what.path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY)};
    if (!file) throw unreadable(what, errno);
    require_private(file.get(), what);
    std::vector<std::string> lines(1);
    char next = 0;
    for (;;) {
        const ssize_t got = ::read(file.get(), &next, 1);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) throw unreadable(what, errno);
        if (got == 0 || (next == '\n' && wanted == lines_wanted::first)) break;
        if (next == '\n') {
            lines.emplace_back();
        } else {
            lines.back() += next;
        }
    }
    for (auto& each : lines) each.erase(each.find_last_not_of(" \t\r\n") + 1);
    return lines;
}

}  // namespace rowlock::cli
