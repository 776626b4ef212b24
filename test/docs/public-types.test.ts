// Goal: whoever imports the library can name every type that its declarations mention, and none is any.
import { fileURLToPath } from 'node:url';
import ts from 'typescript';
import { expect, it } from 'vitest';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const ENTRY = `${ROOT}src/index.ts`;

/** Members that callers do not see. */
function isHidden(node: ts.Node): boolean {
  if (ts.isClassElement(node)) {
    if (node.name !== undefined && ts.isPrivateIdentifier(node.name)) return true;
    const { modifiers } = node as ts.ConstructorDeclaration;
    if (modifiers?.some(({ kind }) => kind === ts.SyntaxKind.PrivateKeyword)) return true;
  }
  if (ts.isBlock(node)) return true; // Of a function.
  return ts.getJSDocTags(node).some((tag) => tag.tagName.text === 'internal');
}

function entityOf(node: ts.Node): ts.Node | undefined {
  if (ts.isTypeReferenceNode(node)) return node.typeName;
  return ts.isExpressionWithTypeArguments(node) ? node.expression : undefined;
}

it('the entry exports every type that its exports mention', () => {
  const read = ts.readConfigFile(`${ROOT}tsconfig.json`, (path) => ts.sys.readFile(path));
  const config = read.config as object;
  const { options } = ts.parseJsonConfigFileContent({ ...config, include: [] }, ts.sys, ROOT);
  const program = ts.createProgram([ENTRY], options);
  const checker = program.getTypeChecker();
  const resolved = (symbol: ts.Symbol): ts.Symbol =>
    symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;
  const entry = checker.getSymbolAtLocation(program.getSourceFile(ENTRY)!)!;
  const exported = new Set(checker.getExportsOfModule(entry).map(resolved));
  const missing = new Set<string>();
  let mentions = 0;
  const visit = (node: ts.Node, by: string): void => {
    if (isHidden(node)) return;
    if (node.kind === ts.SyntaxKind.AnyKeyword) missing.add(`any in ${by}`);
    const entity = entityOf(node);
    const found = entity && checker.getSymbolAtLocation(entity);
    const symbol = found && resolved(found);
    const file = symbol?.declarations?.[0]?.getSourceFile().fileName ?? '';
    const isOurs = file.startsWith(ROOT) && !file.includes('node_modules');
    if (symbol !== undefined && isOurs && !(symbol.flags & ts.SymbolFlags.TypeParameter)) {
      mentions += 1;
      if (!exported.has(symbol)) missing.add(`${symbol.name}, in ${by}`);
    }
    ts.forEachChild(node, (child) => visit(child, by));
  };
  for (const symbol of exported) {
    for (const declaration of symbol.declarations ?? []) {
      // A plan is there to be shown as a whole.
      if (declaration.getSourceFile().fileName.includes('/src/plan/')) continue;
      visit(declaration, symbol.name);
    }
  }
  expect([...missing].sort()).toEqual([]);
  expect(mentions).toBeGreaterThan(100);
});
