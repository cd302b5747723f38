#pragma once

#include <rowlock/version.hpp>

#include <filesystem>
#include <string>
#include <string_view>

/// Loads a module: a driver, or the server. The module runs with all our rights, so it comes from
/// one folder that is fixed when the tool is built or installed, and only users whom the tool
/// trusts anyway may have written it or put it there.
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

/// What a loaded module exports by this name; null if nothing.
[[nodiscard]] const void* symbol_in(void* loaded, const char* name);
[[noreturn]] void refuse_version(const std::string& file);

/// What a module exports: a struct that begins with the version of the rowlock it belongs to.
/// @throws failure `misconfigured` if that differs from the tool's
template <typename Module>
const Module& module_in(void* loaded, const char* name, const std::string& file) {
    const auto* const module = static_cast<const Module*>(symbol_in(loaded, name));
    if (module == nullptr || std::string_view{module->version} != version_string) {
        refuse_version(file);
    }
    return *module;
}

}  // namespace rowlock::cli
