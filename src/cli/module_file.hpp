#pragma once

#include "cli/driver_module.hpp"

#include <filesystem>
#include <string>

/// Loads a driver's module. The module runs with all our rights, so it comes from one folder that
/// is fixed when the tool is built or installed, and only users whom the tool trusts anyway may
/// have written it or put it there.
namespace rowlock::cli {

struct module_folder {
    std::filesystem::path path;  ///< absolute
    /// Members of the folders' groups may write there: in a build they could as well replace the
    /// tool.
    bool group_may_write = false;
};

/// The folder of this executable: src/cli/module_folder.cpp.in.
[[nodiscard]] module_folder folder_of_modules();

/// The handle from dlopen(); never unloaded.
/// @param proc  where the kernel names our descriptors; tests use another path
/// @throws failure `misconfigured`: the file is missing; another user owns or may write it or a
/// folder on the way to it; there is no /proc, the only way to ensure that the checked file is the
/// one that is loaded
[[nodiscard]] void* load_module(const module_folder& from, const std::string& file,
                                const std::string& proc = "/proc");

/// The driver in a loaded module.
/// @throws failure `misconfigured` if its version differs from the tool's
[[nodiscard]] const driver_module& driver_in(void* loaded, const std::string& file);

}  // namespace rowlock::cli
