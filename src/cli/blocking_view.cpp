#include "cli/blocking_view.hpp"

#include "cli/duration.hpp"

#include <fmt/format.h>

namespace rowlock::cli {

std::string description_of(const detail::blocking_transaction& one) {
    const bool prepared = one.of == detail::blocking_transaction::kind::prepared;
    std::string text = prepared ? fmt::format("prepared transaction {}", one.gid)
                                : fmt::format("process {}", one.pid);
    if (!one.user.empty()) text += " of " + one.user;
    if (!one.application_name.empty()) text += fmt::format(" ({})", one.application_name);
    if (!one.state.empty()) text += ", " + one.state;
    if (one.age) text += fmt::format(", for {}", to_text(*one.age));
    if (one.statement_age) {
        text += fmt::format(", its latest statement {} ago", to_text(*one.statement_age));
    }
    if (one.one_of_several) text += ", or another one of this list";
    return text;
}

}  // namespace rowlock::cli
