// The debugger type `armsnap`: VS Code talks to `armsnap dap`.

import * as vscode from "vscode";
import { adapterArguments, Configuration } from "./arguments";

class Adapter implements vscode.DebugAdapterDescriptorFactory {
  createDebugAdapterDescriptor(session: vscode.DebugSession): vscode.DebugAdapterDescriptor {
    const settings = vscode.workspace.getConfiguration("armsnap");
    const words = adapterArguments(
      session.configuration as unknown as Configuration,
      settings.get<string>("gdb", ""),
    );
    return new vscode.DebugAdapterExecutable(settings.get<string>("program", "armsnap"), words);
  }
}

async function open(file?: vscode.Uri): Promise<void> {
  const chosen = file ?? (await vscode.window.showOpenDialog({ canSelectFolders: true }))?.[0];
  if (chosen === undefined) {
    return;
  }
  const folder = vscode.workspace.getWorkspaceFolder(chosen);
  await vscode.debug.startDebugging(folder, {
    type: "armsnap",
    request: "launch",
    name: `armsnap: ${vscode.workspace.asRelativePath(chosen)}`,
    snapshot: chosen.fsPath,
  });
}

export function activate(context: vscode.ExtensionContext): void {
  context.subscriptions.push(
    vscode.debug.registerDebugAdapterDescriptorFactory("armsnap", new Adapter()),
    vscode.commands.registerCommand("armsnap.open", open),
  );
}
