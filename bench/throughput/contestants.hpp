#pragma once

#include "common/findings.hpp"
#include "common/measure.hpp"
#include "common/program.hpp"
#include "common/tables.hpp"
#include "floors/floors.hpp"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
}

/// The common parts of the two programs about free locks.
namespace bench {

struct throughput_options {
    int connections = rowlock::client_options{}.max_connections;
    int rounds = 0;        ///< 0: depends on --quick
    int milliseconds = 0;  ///< the same
};

void add_throughput_options(CLI::App& app, throughput_options& options);

using measure_on =
    std::function<void(const program_options& common, const std::vector<std::string>& databases,
                       const throughput_options& options, findings& found)>;
/// The main of a program that measures on each of the databases which its option --database names.
/// @param more adds the program's own options
int run_on_databases(int argc, char** argv, const std::string& about, const measure_on& measure,
                     const std::function<void(CLI::App&)>& more = {});

[[nodiscard]] round_options rounds_of(const program_options& common,
                                      const throughput_options& options);

/// The URL of the database that --database names: a server's, or that of a file in the folder.
[[nodiscard]] std::string url_of(const std::string& database, const temporary_folder& folder);

/// The name of the lock that only the worker with this number uses.
[[nodiscard]] std::string name_of(int worker);

/// One rowlock client for all threads.
[[nodiscard]] contestant ours(const tables& where, int threads, const throughput_options& options);
[[nodiscard]] contestant floor_of(floor_table& table, int threads);

/// A rowlock client for each thread, as in as many processes.
/// @param mark ends the names of their locks
[[nodiscard]] contestant a_client_each(const tables& where, int clients,
                                       const std::string& mark = {});

/// Measures them in turns, and adds a note with the results of each. Returns the paces in their
/// order.
std::vector<pace> measured(findings& found, const std::string& where, std::vector<contestant>& all,
                           const round_options& rounds);

/// Adds a note with a contestant's results: processor time of the client and of the server.
void tell(findings& found, const std::string& where, const contestant& who, const pace& seen);

}  // namespace bench
