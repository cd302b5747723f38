#include "cli/commands.hpp"
#include "cli/text.hpp"
#include <rowlock/fenced_table.hpp>

namespace rowlock::cli {

/// For a file of the user's own migrations; `delimiter` is for the mysql client, which would end a
/// trigger at its first semicolon.
int fence_token(const fence_token_options& options) {
    const auto dialect = options.dialect ? dialect_named(*options.dialect)
                                         : find_database(options.database).source.speaks();
    const bool delimited = options.trigger && dialect == sql::dialect::mysql;
    std::string script;
    if (delimited) script += "delimiter //\n";
    for (const auto& statement : fence_token_sql(
             dialect, options.table, {.column = options.column, .trigger = options.trigger})) {
        script.append(statement).append(delimited ? "//\n" : ";\n");
    }
    if (delimited) script += "delimiter ;\n";
    print(script);
    return success;
}

}  // namespace rowlock::cli
