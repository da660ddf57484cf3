// Builds the page into one script and one style sheet with fixed names: the server has a list of its files. Names with a hash
// were rejected: the server sends a tag of the content, and the page asks again each time.
//
// `THALWEG=http://127.0.0.1:9598 npm run dev` shows a run while the page is edited.

import fs from "node:fs";
import path from "node:path";
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

/** Packages whose files have the code of others in them. */
const WITHIN = { "@dagrejs/dagre": ["@dagrejs/graphlib"] };

/** Writes the licences of the packages whose code is in the script: their text goes with every copy of the program. */
function licences() {
  return {
    name: "licences",
    generateBundle(_, bundle) {
      const modules = Object.values(bundle).flatMap((chunk) => Object.keys(chunk.modules ?? {}));
      const names = modules.map((file) => /.*\/node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(file)?.[1]).filter(Boolean);
      const all = new Set(names.flatMap((name) => [name, ...(WITHIN[name] ?? [])]));
      const found = [...all].sort().map((name) => {
        const folder = path.join(import.meta.dirname, "node_modules", name);
        const { version, license, homepage, repository } = JSON.parse(fs.readFileSync(path.join(folder, "package.json"), "utf8"));
        const file = fs.readdirSync(folder).find((file) => /^licen[cs]e/i.test(file));
        if (!file) {
          this.error(`${name} has no file with its licence`);
        }
        const source = (repository?.url ?? homepage ?? "").replace(/^git\+/, "");
        return { name, version, license, repository: source, text: fs.readFileSync(path.join(folder, file), "utf8").trim() };
      });
      this.emitFile({ type: "asset", fileName: "licences.json", source: `${JSON.stringify(found, null, 2)}\n` });
    },
  };
}

export default defineConfig({
  // The page may be below a path of a proxy.
  base: "./",
  plugins: [svelte(), licences()],
  build: {
    outDir: process.env.DASHBOARD_OUT ?? "dist",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    rollupOptions: {
      output: {
        codeSplitting: false,
        entryFileNames: "dashboard/app.js",
        assetFileNames: (file) => (file.names.some((name) => name.endsWith(".css")) ? "dashboard/app.css" : "dashboard/[name][extname]"),
      },
    },
  },
  server: { proxy: { "/api": { target: process.env.THALWEG ?? "http://127.0.0.1:9598" } } },
});
