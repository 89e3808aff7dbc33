// The command line of the adapter. Without VS Code, so that it can be tested alone.

/** The attributes of a launch configuration that the manifest declares. */
export interface Configuration {
  snapshot: string;
  elf?: string[];
  sysroot?: string[];
  core?: string[];
}

/** Returns the arguments of armsnap for a configuration. */
export function adapterArguments(configuration: Configuration, gdb: string): string[] {
  const words = ["dap"];
  const add = (option: string, values: string[] | undefined) => {
    for (const value of values ?? []) {
      words.push(`--${option}=${value}`);
    }
  };
  add("elf", configuration.elf);
  add("sysroot", configuration.sysroot);
  add("core", configuration.core);
  add("gdb", gdb === "" ? [] : [gdb]);
  // A name that starts with a dash is no option.
  const name = configuration.snapshot;
  words.push(name.startsWith("-") ? `./${name}` : name);
  return words;
}
